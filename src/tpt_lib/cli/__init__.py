"""The command line: ``tpt-lib`` parses, and hands over to ``commands``."""

from tpt_lib.cli.parser import main

__all__ = ["main"]
