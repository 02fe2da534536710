"""What the command line prints besides results."""

from __future__ import annotations

import sys

__all__ = ["say"]


def say(text: object) -> None:
    """Print one line to standard error, whatever line breaks the text has."""
    print(f"tpt-lib: {' '.join(str(text).split())}", file=sys.stderr)
