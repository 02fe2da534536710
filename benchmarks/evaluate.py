"""What the runner costs: ``evaluate`` with TPT over a bare loop of ``tpt_classify`` on the same images, 2 threads.

``python benchmarks/evaluate.py`` prints a table (``--json FILE`` writes it too). Runs are interleaved in one process.
"""

from __future__ import annotations

import argparse
import json
import logging
import statistics
import tempfile
from pathlib import Path
from typing import Any

import open_clip
import torch
from text import seconds, spread

import tpt_lib as tpt

BAR = 1.05


def bare_loop(model: tpt.ClipLike, images: list[torch.Tensor], prompts: tpt.ClassPrompts) -> None:
    for image in images:
        tpt.tpt_classify(model, image, prompts)


def run(model: tpt.ClipLike, data: tpt.EvalSet, prompts: tpt.ClassPrompts, workers: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "run.jsonl"
        tpt.evaluate(tpt.tpt_predict, data, model=model, out=out, prompts=prompts, num_workers=workers, progress=False)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=7)
    parser.add_argument("--images", type=int, default=24)
    parser.add_argument("--json")
    arguments = parser.parse_args()
    logging.disable()
    torch.set_num_threads(2)
    torch.manual_seed(0)
    model = tpt.wrap(open_clip.create_model("ViT-S-32-alt"))
    names = open_clip.IMAGENET_CLASSNAMES[:100]
    prompts = tpt.class_prompts(model, names)
    images = [torch.randint(256, (3, 375, 500), dtype=torch.uint8) for _ in range(arguments.images)]
    data = tpt.EvalSet("noise", [(image, 0) for image in images], names)
    print(f"torch {torch.__version__}, open_clip {open_clip.__version__}, {torch.get_num_threads()} threads")

    bare_loop(model, images[:2], prompts)
    times: dict[str, list[float]] = {"bare loop": [], "evaluate, no worker": [], "evaluate, 1 worker": []}
    for _ in range(arguments.pairs):
        times["bare loop"].append(seconds(bare_loop, model, images, prompts))
        times["evaluate, no worker"].append(seconds(run, model, data, prompts, 0))
        times["evaluate, 1 worker"].append(seconds(run, model, data, prompts, 1))
    print(
        f"\n{len(images)} images, K={len(names)}, 64 views, {arguments.pairs} rounds: median (from to), over the bare loop"
    )
    found: dict[str, Any] = {"times": times, "ratios": {}}
    for name, values in times.items():
        ratios = [a / b for a, b in zip(values, times["bare loop"], strict=True)]
        found["ratios"][name] = ratios
        middle = statistics.median(ratios)
        print(f"  {name:20} {spread(values)}   {middle:5.3f} ({min(ratios):.3f} to {max(ratios):.3f})   bar {BAR}")
    if arguments.json:
        with open(arguments.json, "w") as file:
            json.dump(found, file, indent=1)


if __name__ == "__main__":
    main()
