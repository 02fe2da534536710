"""How the cost of TPT grows with classes, views, steps and images: ViT-S/32, a small tower, so that many runs take little.

``python benchmarks/growth.py`` prints tables (``--json FILE`` writes them too). Runs are interleaved in one process: in each
round every point once, and right before it its floor, the encoding of the same views and nothing else.
"""

from __future__ import annotations

import argparse
import json
import logging
import statistics
from typing import Any

import open_clip
import torch
from text import seconds, spread

import tpt_lib as tpt
from tpt_lib.evaluation.profiling import measured

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
        """The views' encoding alone."""
        with torch.inference_mode():
            for views in self.views:
                for part in torch.split(views, 8):
                    self.model.encode_image(part)

    def whole(self) -> None:
        tpt.tpt_classify(
            self.model, self.images, self.prompts, n_views=self.setting["views"], steps=self.setting["steps"]
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=7)
    parser.add_argument("--quick", action="store_true", help="two points of each curve")
    parser.add_argument("--json")
    arguments = parser.parse_args()
    logging.disable()
    torch.set_num_threads(2)
    torch.manual_seed(0)
    model = tpt.wrap(open_clip.create_model("ViT-S-32-alt").eval().requires_grad_(False))
    print(f"torch {torch.__version__}, open_clip {open_clip.__version__}, {torch.get_num_threads()} threads")
    found: dict[str, Any] = {"model": "ViT-S-32-alt", "base": BASE, "curves": {}}
    for name, values in (QUICK if arguments.quick else CURVES).items():
        points = {value: Point(model, **{**BASE, name: value}) for value in values}
        rows: dict[int, Any] = {}
        for value, point in points.items():
            point.floor()
            first = measured(point.whole, torch.device("cpu"))[1]
            rows[value] = {"times": [], "floor": [], "first": first.seconds, "memory_mb": first.memory}
        for _ in range(arguments.pairs):
            for value, point in points.items():
                rows[value]["floor"].append(seconds(point.floor))
                rows[value]["times"].append(seconds(point.whole))
        found["curves"][name] = rows
        fixed = ", ".join(f"{value} {key}" for key, value in BASE.items() if key != name)
        print(f"\n{name} ({fixed}): seconds, median (from to), the floor, and MB at the peak of the first run")
        for value, row in rows.items():
            floor = statistics.median(row["floor"])
            print(f"  {value:5} {spread(row['times'])}   floor {floor:7.3f} s   {row['memory_mb'] or 0:6.0f} MB")
    if arguments.json:
        with open(arguments.json, "w") as file:
            json.dump(found, file, indent=1)


if __name__ == "__main__":
    main()
