"""Print what is not a result."""

from __future__ import annotations

import sys

__all__ = ["say"]


def say(text: object) -> None:
    """Print a text to standard error as one line, without its line breaks."""
    print(f"tpt-lib: {' '.join(str(text).split())}", file=sys.stderr)
