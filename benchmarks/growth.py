"""How the cost of TPT grows with classes, views, steps and images: ViT-S/32, a small tower, so that many runs take little.

Runs are interleaved in one process. Each round runs every point once, and right before it its floor, the encoding of the same
views and nothing else.
"""

from __future__ import annotations

import statistics
from functools import partial
from typing import Any

import open_clip
import torch
from harness import open_model, parser, prepare, rounds, seconds, spread, write_json

import tpt_lib as tpt
from tpt_lib.evaluation.profiling import measured

ARCHITECTURE = "ViT-S-32-alt"
BASE = {"classes": 100, "views": 32, "steps": 1, "images": 1}
CURVES = {
    "classes": (50, 100, 200, 400, 1000),
    "views": (8, 16, 32, 64, 128),
    "steps": (1, 2, 4, 8),
    "images": (1, 2, 4, 8),
}
QUICK = {name: values[:2] for name, values in CURVES.items()}


class Point:
    """One setting, and what runs it."""

    def __init__(self, model: Any, **setting: int) -> None:
        self.model, self.setting = model, setting
        self.prompts = tpt.class_prompts(model, open_clip.IMAGENET_CLASSNAMES[: setting["classes"]])
        draw = torch.Generator().manual_seed(0)
        shape = (setting["images"], 3, 375, 500)
        self.images = list(torch.randint(256, shape, dtype=torch.uint8, generator=draw))
        self.views = [tpt.augment_views(image, model.image_spec, n_views=setting["views"]) for image in self.images]

    def floor(self) -> None:
        """Encode the views and do nothing else."""
        with torch.inference_mode():
            for views in self.views:
                for part in torch.split(views, 8):
                    self.model.encode_image(part)

    def whole(self) -> None:
        n_views, steps = self.setting["views"], self.setting["steps"]
        tpt.tpt_classify(self.model, self.images, self.prompts, n_views=n_views, steps=steps)


def curve(model: Any, name: str, values: tuple[int, ...], pairs: int) -> dict[int, Any]:
    """Vary one setting, print its table, and return a row for each value."""
    points = {value: Point(model, **{**BASE, name: value}) for value in values}
    first = {}
    for value, point in points.items():
        point.floor()
        first[value] = measured(point.whole, torch.device("cpu"))[1]
    calls = {f"{value} {what}": getattr(point, what) for value, point in points.items() for what in ("floor", "whole")}
    times = rounds({key: partial(seconds, call) for key, call in calls.items()}, pairs)
    rows: dict[int, Any] = {
        value: {
            "times": times[f"{value} whole"],
            "floor": times[f"{value} floor"],
            "first": first[value].seconds,
            "memory_mb": first[value].memory,
        }
        for value in values
    }
    fixed = ", ".join(f"{value} {key}" for key, value in BASE.items() if key != name)
    print(f"\n{name} ({fixed}): seconds, median (min-max), the floor, and MB at the peak of the first run")
    for value, row in rows.items():
        floor, megabytes = statistics.median(row["floor"]), row["memory_mb"] or 0
        print(f"  {value:5} {spread(row['times'])}   floor {floor:7.3f} s   {megabytes:6.0f} MB")
    return rows


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--quick", action="store_true", help="two points of each curve")
    arguments = options.parse_args()
    prepare(open_clip)
    _, model = open_model(ARCHITECTURE)
    curves = (QUICK if arguments.quick else CURVES).items()
    found = {name: curve(model, name, values, arguments.pairs) for name, values in curves}
    write_json(arguments.json, {"model": ARCHITECTURE, "base": BASE, "curves": found})


if __name__ == "__main__":
    main()
