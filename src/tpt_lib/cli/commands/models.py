"""``tpt-lib models``: list the models."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from tpt_lib.cli.output import say, show
from tpt_lib.evaluation.table import Table

ABOUT = "List the models that can be loaded"
EXAMPLES = ("", "ViT-B-16")


def add_options(command: ArgumentParser) -> None:
    """Add the options of this command."""
    command.add_argument(
        "contains", nargs="?", default="", metavar="TEXT", help="show only models with this in their name"
    )


def run(args: Namespace) -> int:
    """Print a row per model and tag of its weights."""
    import open_clip

    pairs = [("tiny", None), *open_clip.list_pretrained()]
    rows = [
        {"model": name, "pretrained": tag}
        for name, tag in pairs
        if args.contains.lower() in f"{name} {tag or ''}".lower()
    ]
    if not rows and not args.json:
        say(f"no model has {args.contains!r} in its name")
    else:
        show(args, rows, Table(tuple(rows)))
    return 0
