"""``python -m tpt_lib`` is ``tpt-lib``."""

import sys

from tpt_lib.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
