"""Measure how TPT depends on its settings and write docs/settings.json: ``python scripts/settings.py``.

Encodes all drawings of a style once, and runs TPT from the store for each setting, which takes 15 minutes or more. The same
command resumes a measurement that was stopped. ``scripts/figures.py`` draws the numbers.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import tpt_lib as tpt

ROOT = Path(__file__).parents[1]
NUMBERS, WORK = ROOT / "docs/settings.json", ROOT / "build/settings"
DEFAULTS: dict[str, Any] = {"views": 64, "fraction": 0.1, "steps": 1, "lr": 5e-3}
VALUES: dict[str, tuple[float, ...]] = {
    "views": (8, 16, 32, 64),
    "fraction": (0.1, 0.3, 1.0),
    "lr": (2.5e-3, 5e-3, 1e-2, 2e-2),
    "steps": (1, 2, 4),
}


def measure(
    model: tpt.ClipLike, data: tpt.EvalSet, folder: Path, values: Mapping[str, tuple[float, ...]] = VALUES
) -> dict[str, Any]:
    """Return for each setting and value how many predictions of zero-shot TPT fixed and how many it broke."""
    most = int(max(values["views"]))
    store = tpt.encode_dataset(model, data, folder / "store", n_views=most, num_workers=0)
    found: dict[str, Any] = {"dataset": data.name, "n": len(data), "defaults": DEFAULTS}
    for setting, listed in values.items():
        found[setting] = []
        for value in listed:
            fixed, broken = counts(model, store, folder, **DEFAULTS | {"views": most, setting: value})
            found[setting].append({"value": value, "fixed": fixed, "broken": broken})
            print(f"{setting} {value:g}: {fixed} fixed, {broken} broken", flush=True)
    return found


def counts(
    model: tpt.ClipLike, store: tpt.FeatureStore, folder: Path, *, views: int, fraction: float, steps: int, lr: float
) -> tuple[int, int]:
    """Return how many predictions of zero-shot TPT fixed and how many it broke."""
    tuned = partial(tpt.tpt_predict, select=partial(tpt.select_confident, fraction=fraction), steps=steps, lr=lr)
    out = folder / f"views{views}-fraction{fraction:g}-steps{steps}-lr{lr:g}.jsonl"
    methods: dict[str, Any] = {"zero-shot": "zero_shot", "TPT": tuned}
    report = tpt.evaluate(model, store, methods, out=out, n_views=views, batch_size=16, num_workers=0)
    (row,) = report.compare("zero-shot", "TPT").rows
    return row["only_b"], row["only_a"]


def main() -> int:
    NUMBERS.write_text(json.dumps(measure(tpt.load_tiny(), tpt.load_tiny_drawings(), WORK), indent=1) + "\n")
    print(f"wrote {NUMBERS}; draw it with python scripts/figures.py")
    return 0


if __name__ == "__main__":
    sys.exit(main())
