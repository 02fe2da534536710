"""Run ``tpt-lib``: parse, call the command, turn errors into one line and an exit code."""

from __future__ import annotations

import io
import os
import sys
import traceback
import warnings
from collections.abc import Sequence

from tpt_lib.cli.commands import COMMANDS
from tpt_lib.cli.output import say
from tpt_lib.cli.parser import FAILED, OK, REFUSED, STOPPED, parser

__all__ = ["main"]


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; ``tpt-lib --help`` lists them.

    Args:
        argv: the arguments (default those of the process).

    Returns:
        The exit code, 0 for success.
    """
    _print_any_text()
    args = parser().parse_args(argv)
    with warnings.catch_warnings():
        warnings.showwarning = lambda message, *_: say(f"warning: {message}")
        try:
            code: int = COMMANDS[args.command].run(args)
            sys.stdout.flush()
            return code
        except KeyboardInterrupt:
            say("stopped; the same command resumes evaluate, encode and reproduce")
            return STOPPED
        except BrokenPipeError:  # as with "| head"
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return OK
        except Exception as error:
            if args.debug:
                traceback.print_exc()
            expected = isinstance(error, ValueError | OSError | ImportError)
            kind = "" if expected else f"unexpected {type(error).__name__} (--debug shows the traceback): "
            say(f"error: {kind}{error}")
            return REFUSED if expected else FAILED


def _print_any_text() -> None:
    """Escape characters that the encoding of a stream lacks, such as the code page that Windows uses for files."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper) and stream.errors == "strict":
            stream.reconfigure(errors="backslashreplace")
