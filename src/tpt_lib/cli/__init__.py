"""The command line ``tpt-lib``."""

from tpt_lib.cli.main import main

__all__ = ["main"]
