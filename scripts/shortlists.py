"""Measure what a shortlist changes and write the table of docs/tuning.md: ``python scripts/shortlists.py``.

Runs ``benchmarks/shortlist.py``, which takes some minutes, and writes its numbers to ``docs/shortlist.json``; the table between
the markers of the page comes from that file. ``--tables`` measures nothing and writes the table only; ``--check`` fails if it
is stale.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from tpt_lib.evaluation.table import Table

sys.path.append(str(Path(__file__).parent))
from pages import with_tables, write_or_check

ROOT = Path(__file__).parents[1]
PAGE, NUMBERS = ROOT / "docs/tuning.md", ROOT / "docs/shortlist.json"
MODELS = {"drawings": "embedded model, drawings", "random": "random tower and features"}


def page(text: str, found: dict[str, Any]) -> str:
    """Return the page with the table made from the numbers."""
    rows = [
        {
            "model": f"{title}, K={found[name][-1]['shortlist']}",
            "shortlist": row["shortlist"],
            "same class": f"{row['same class']:.0%}",
            "largest change of a probability": f"{row['probability']:.2g}",
            "of the context": f"{row['context']:.2g}",
        }
        for name, title in MODELS.items()
        for row in found[name]
    ]
    note = f"{found['images']} images each, learning rate {found['learning rate']:g}."
    return with_tables(PAGE, text, {"shortlist": f"{Table(tuple(rows)).to_markdown()}\n\n{note}"})


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tables", action="store_true", help="write the table from docs/shortlist.json")
    parser.add_argument("--check", action="store_true", help="write nothing; exit with 1 if the table would change")
    arguments = parser.parse_args()
    if not (arguments.tables or arguments.check):
        command = [sys.executable, "benchmarks/shortlist.py", "--json", str(NUMBERS)]
        subprocess.run(command, cwd=ROOT, check=True)
    new = page(PAGE.read_text(encoding="utf-8"), json.loads(NUMBERS.read_text()))
    return write_or_check(PAGE, new, check=arguments.check, command="python scripts/shortlists.py --tables")


if __name__ == "__main__":
    sys.exit(main())
