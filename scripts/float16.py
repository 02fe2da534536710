"""Measure what storing features as float16 changes and write the table of docs/stores.md: ``python scripts/float16.py``.

Encodes drawings with the embedded model into two stores, float32 and float16, and runs every episodic method that takes
features from both, which takes some minutes. The numbers go to ``docs/float16.json``; the table between the markers of the page
comes from that file. ``--tables`` measures nothing and writes the table only; ``--check`` fails if it is stale.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

import tpt_lib as tpt
from tpt_lib.evaluation.table import Table

sys.path.append(str(Path(__file__).parent))
from pages import with_tables, write_or_check

ROOT = Path(__file__).parents[1]
PAGE, NUMBERS = ROOT / "docs/stores.md", ROOT / "docs/float16.json"
BATCH = 16


def from_features() -> tuple[str, ...]:
    """Return the names of the episodic methods that run from features alone."""
    return tuple(name for name in tpt.list_methods() if tpt.get_method(name).needs == ("features",))


def measure(images: int, n_views: int, methods: Sequence[str]) -> dict[str, Any]:
    """Return for each method how often both stores give the same class, and the largest change of a probability."""
    model, data = tpt.load_tiny(), tpt.load_tiny_drawings(n=images)
    prompts = tpt.class_prompts(model, data.classes, template=data.template)
    with tempfile.TemporaryDirectory() as folder:
        exact, half = (
            tpt.encode_dataset(model, data, Path(folder, dtype), dtype=dtype, n_views=n_views, num_workers=0)
            for dtype in ("float32", "float16")
        )
        rows = [{"method": name, **changes(model, prompts, name, exact, half)} for name in methods]
    return {"dataset": data.name, "images": images, "views": n_views, "rows": rows}


def changes(
    model: tpt.ClipLike, prompts: tpt.ClassPrompts, name: str, exact: tpt.FeatureStore, half: tpt.FeatureStore
) -> dict[str, float]:
    """Return what a method says differently of the samples of two stores."""
    predict: Any = tpt.get_method(name).predict
    same, largest = 0, 0.0
    for (one, _), (two, _) in zip(exact.loader(batch_size=BATCH), half.loader(batch_size=BATCH), strict=True):
        before, after = predict(model, prompts, one), predict(model, prompts, two)
        same += int((before.indices == after.indices).sum())
        largest = max(largest, float((before.probs - after.probs).abs().max()))
    print(f"{name}: {same} of {len(exact)}, {largest:.2g}", flush=True)
    return {"same class": same / len(exact), "probability": largest}


def page(text: str, found: dict[str, Any]) -> str:
    """Return the page with the table made from the numbers."""
    rows = [
        {
            "method": tpt.get_method(row["method"]).title,
            "same class": f"{row['same class']:.1%}",
            "largest change of a probability": f"{row['probability']:.2g}",
        }
        for row in found["rows"]
    ]
    note = f"{found['images']} drawings of {found['dataset']}, {found['views']} views each."
    return with_tables(PAGE, text, {"float16": f"{Table(tuple(rows)).to_markdown()}\n\n{note}"})


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=200, help="number of drawings")
    parser.add_argument("--views", type=int, default=64, help="number of views of each")
    parser.add_argument("--tables", action="store_true", help="write the table from docs/float16.json")
    parser.add_argument("--check", action="store_true", help="write nothing; exit with 1 if the table would change")
    arguments = parser.parse_args()
    if not (arguments.tables or arguments.check):
        torch.set_num_threads(1)
        found = measure(arguments.images, arguments.views, from_features())
        NUMBERS.write_text(json.dumps(found, indent=1) + "\n")
    new = page(PAGE.read_text(encoding="utf-8"), json.loads(NUMBERS.read_text()))
    return write_or_check(PAGE, new, check=arguments.check, command="python scripts/float16.py --tables")


if __name__ == "__main__":
    sys.exit(main())
