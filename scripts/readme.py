"""Write the tables of the README from the registry and from what was measured: ``python scripts/readme.py``.

The numbers are those of ``docs/benchmarks.json`` (``scripts/bench.py``) and ``docs/gpu.json`` (``scripts/costs.py``).
``--check`` fails if the README has others.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from statistics import median
from typing import Any

import tpt_lib
from tpt_lib.evaluation.table import Table

sys.path += [str(Path(__file__).parent), str(Path(__file__).parents[1] / "benchmarks")]
from cost_model import GPUS, predicted_seconds, works
from pages import with_tables, write_or_check

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "README.md"
COUNTED = ("tpt_predict, K=200", "tpt_predict, K=200, batch of 8", "tpt_predict, K=1000")


def methods_table() -> str:
    """Return the methods of the registry, those of one image first."""
    rows = [
        {"name": f"`{name}`", "method": entry.title, "source": entry.paper or "-", "learns from": learns_from}
        for learns_from, online in (("one image", False), ("the stream", True))
        for name in tpt_lib.list_methods(online=online)
        for entry in [tpt_lib.get_method(name)]
    ]
    return Table(tuple(rows)).to_markdown()


def speed_table(timed: dict[str, Any], counted: dict[str, Any]) -> str:
    """Return what users ask first, a line each: medians, counts, and the model of a GPU's time."""
    its, text, store = timed["tpt"], timed["text"], timed["store"]
    lines = {
        f"TPT of one image over encoding its 64 views, {its['model']}, {case}": f"{median(its['over'][case]):.2f}"
        for case in its["over"]
    }
    memory = ", ".join(f"{gigabytes:.1f} GB ({case})" for case, gigabytes in its["memory_gb"].items())
    faster = median(text["times"]["plain, 77 tokens"]) / median(text["times"]["tpt_lib"])
    from_store = median(store["tpt"]["from a store"]) / median(store["tpt"]["from images"])
    lines["memory over the loaded model"] = memory
    lines[f"the text step next to prompts of 77 tokens, K={text['classes']}"] = f"{faster:.0f} times faster"
    lines["TPT from stored features over TPT from the image"] = f"{from_store:.2f}"
    for call in COUNTED:
        cost = counted["costs"][call]
        waits = cost["synchronizations"]
        lines[f"launches per image, `{call.replace(', ', '`, ', 1)}"] = (
            f"{cost['launches']:,.0f}, and {waits} synchronization{'' if waits == 1 else 's'} per call (counted)"
        )
    for name, work in works(counted).items():
        seconds = ", ".join(f"{predicted_seconds(gpu, work, half=True):.3f} ({gpu.name})" for gpu in GPUS)
        lines[f"seconds per image, {name}, image tower in float16"] = f"{seconds} (a model)"
    return Table(tuple({"": what, "result": value} for what, value in lines.items())).to_markdown()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing; exit with 1 if the README would change")
    arguments = parser.parse_args()
    timed, counted = (json.loads((ROOT / f"docs/{name}.json").read_text()) for name in ("benchmarks", "gpu"))
    tables = {"methods": methods_table(), "speed": speed_table(timed, counted)}
    new = with_tables(PAGE, PAGE.read_text(encoding="utf-8"), tables)
    return write_or_check(PAGE, new, check=arguments.check, command="python scripts/readme.py")


if __name__ == "__main__":
    sys.exit(main())
