"""Build the parser of all commands."""

from __future__ import annotations

import argparse
from difflib import get_close_matches
from typing import NoReturn

import tpt_lib
from tpt_lib.cli.commands import COMMANDS
from tpt_lib.cli.options import add_common

__all__ = ["FAILED", "OK", "REFUSED", "STOPPED", "parser"]

OK, FAILED, REFUSED, STOPPED = 0, 1, 2, 130

CODES = """exit codes:
  0    success
  1    some images could not be used (each is named), or an unexpected error
  2    invalid request: a wrong option, a missing file, a run file with different settings
  130  stopped with Ctrl-C"""


class _Parser(argparse.ArgumentParser):
    """Report errors in one line."""

    def error(self, message: str) -> NoReturn:
        self.exit(REFUSED, f"tpt-lib: error: {message}; '{self.prog} --help' has examples\n")


class _Command(_Parser):
    """Refuse unknown options with the help of their command."""

    def parse_known_args(self, args=None, namespace=None):  # type: ignore[no-untyped-def]
        found, unknown = super().parse_known_args(args, namespace)
        if unknown:
            option = unknown[0].partition("=")[0]
            near = get_close_matches(option, self._option_string_actions, n=1)
            self.error(f"unknown {option!r}; did you mean {near[0]!r}?" if near else f"unknown {option!r}")
        return found, unknown


def parser() -> argparse.ArgumentParser:
    """Return the parser of all commands."""
    top = _Parser(
        prog="tpt-lib",
        description="Test-time prompt tuning of CLIP-like models. 'tpt-lib COMMAND --help' has examples.",
        epilog=f"examples:\n  tpt-lib demo\n  tpt-lib classify photo.jpg --classes cat dog 'red panda'\n\n{CODES}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,  # a new option must not change what a script means
    )
    top.add_argument("--version", action="version", version=f"tpt-lib {tpt_lib.__version__}")
    commands = top.add_subparsers(dest="command", metavar="COMMAND", required=True, parser_class=_Command)
    for name, module in COMMANDS.items():
        examples = "\n".join(f"  tpt-lib {name} {example}".rstrip() for example in module.EXAMPLES)
        command = commands.add_parser(
            name,
            help=module.ABOUT[0].lower() + module.ABOUT[1:],
            description=f"{module.ABOUT}.",
            epilog=f"examples:\n{examples}\n\n{CODES}",
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )
        module.add_options(command)
        add_common(command)
    return top
