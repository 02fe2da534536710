"""Cost of the runner: ``evaluate`` with TPT over a bare loop of ``tpt_classify`` on the same images, 2 threads, interleaved."""

from __future__ import annotations

import tempfile
from functools import partial
from pathlib import Path

import open_clip
import torch
from harness import open_model, parser, prepare, print_times, ratios, rounds, seconds, write_json

import tpt_lib as tpt

BAR = 1.05


def bare_loop(model: tpt.ClipLike, images: list[torch.Tensor], prompts: tpt.ClassPrompts) -> None:
    for image in images:
        tpt.tpt_classify(model, image, prompts)


def run(model: tpt.ClipLike, data: tpt.EvalSet, prompts: tpt.ClassPrompts, workers: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "run.jsonl"
        tpt.evaluate(model, data, "tpt", out=out, prompts=prompts, num_workers=workers, progress=False)


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--images", type=int, default=24)
    arguments = options.parse_args()
    prepare(open_clip)
    _, model = open_model("ViT-S-32-alt")
    names = open_clip.IMAGENET_CLASSNAMES[:100]
    prompts = tpt.class_prompts(model, names)
    images = [torch.randint(256, (3, 375, 500), dtype=torch.uint8) for _ in range(arguments.images)]
    data = tpt.EvalSet("noise", [(image, 0) for image in images], names)

    bare_loop(model, images[:2], prompts)
    measures = {
        "bare loop": partial(seconds, bare_loop, model, images, prompts),
        "evaluate, no worker": partial(seconds, run, model, data, prompts, 0),
        "evaluate, 1 worker": partial(seconds, run, model, data, prompts, 1),
    }
    times = rounds(measures, arguments.pairs)
    setting = f"{len(images)} images, K={len(names)}, 64 views, {arguments.pairs} rounds"
    print(f"\n{setting}: median (min-max), and over the bare loop in each round")
    print_times(times, "bare loop", note=f"   bar {BAR}")
    over = {name: ratios(values, times["bare loop"]) for name, values in times.items()}
    write_json(arguments.json, {"times": times, "ratios": over})


if __name__ == "__main__":
    main()
