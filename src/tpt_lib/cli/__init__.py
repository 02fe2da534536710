"""The command line."""

from tpt_lib.cli.main import main

__all__ = ["main"]
