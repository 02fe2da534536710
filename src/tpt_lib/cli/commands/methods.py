"""``tpt-lib methods``: list the methods."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

import tpt_lib as tpt
from tpt_lib.cli.output import show
from tpt_lib.evaluation.table import Table

ABOUT = "List the methods, what they need and where they were published"
EXAMPLES = ("",)


def add_options(_: ArgumentParser) -> None:
    """Add nothing: this command has no options of its own."""


def run(args: Namespace) -> int:
    """Print a row per method, episodic ones first."""
    entries = [tpt.get_method(name) for online in (False, True) for name in tpt.list_methods(online=online)]
    rows = [
        {
            "name": entry.name,
            "title": entry.title,
            "kind": "online" if entry.online else "episodic",
            "needs": ", ".join(entry.needs),
            "paper": entry.paper,
        }
        for entry in entries
    ]
    show(args, rows, Table(tuple(rows)))
    return 0
