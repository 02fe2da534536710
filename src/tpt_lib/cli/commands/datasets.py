"""``tpt-lib datasets``: list the datasets that have names."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import Any

import tpt_lib as tpt
from tpt_lib.cli.dataset import load_embedded
from tpt_lib.cli.output import show
from tpt_lib.evaluation.data.registry import EMBEDDED, ENTRIES, SPLITS_OF_BONGARD, Entry
from tpt_lib.evaluation.table import Table

ABOUT = "List the datasets that can be loaded by name"
EXAMPLES = ("", "--root /data")


def add_options(command: ArgumentParser) -> None:
    """Add the options of this command."""
    command.add_argument("--root", metavar="FOLDER", help="folder to look for them in")


def run(args: Namespace) -> int:
    """Print a row per dataset; with ``--root`` also the number of samples found there, or why it cannot be loaded."""
    if args.root and not Path(args.root).is_dir():
        raise FileNotFoundError(f"--root: {args.root!r} is not a folder")
    rows: list[dict[str, Any]] = []
    for name in EMBEDDED:
        data = load_embedded(name)
        rows.append({"name": name, "classes": len(data.classes), "train": None, "val": None, "test": len(data)})
        rows[-1] |= {"views": data.recipe, **({"found": "embedded"} if args.root else {})}
    for entry in ENTRIES.values():
        counts = {split: entry.counts.get(split) for split in ("train", "val", "test")}
        rows.append({"name": entry.name, "classes": entry.classes, **counts, "views": entry.recipe})
        if args.root:
            rows[-1]["found"] = _found(entry, args.root)
    show(args, rows, Table(tuple(rows)))
    return 0


def _found(entry: Entry, root: str) -> str:
    split = "test" if "test" in entry.counts else next(iter(entry.counts), SPLITS_OF_BONGARD[0])
    try:
        return f"{len(tpt.load_dataset(entry.name, root, split=split)):,}"
    except (ValueError, OSError) as error:
        return f"no: {str(error).split('. ')[0]}"
