"""What TPT costs beside encoding its views: ViT-B/16, one image, 64 views, ImageNet names, float32, 2 threads.

``python benchmarks/tpt.py`` prints a table (``--json FILE`` writes it too). Runs are interleaved in one process: in each
round the 64 views are encoded alone, in chunks of three sizes of which the fastest counts, then everything is run (views,
encoding, tuning, prediction) for each K.
"""

from __future__ import annotations

import argparse
import json
import logging
import statistics
from typing import Any

import open_clip
import torch
from text import peak_gb, plain_step, seconds, spread
from torch import Tensor

import tpt_lib as tpt


def views_alone(module: Any, views: Tensor, chunk: int) -> None:
    with torch.inference_mode():
        for part in torch.split(views, chunk):
            module.encode_image(part)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=7)
    parser.add_argument("--classes", type=int, nargs="+", default=[200, 1000])
    parser.add_argument("--architecture", default="ViT-B-16", help="another of open_clip's, for a quick trial")
    parser.add_argument("--json")
    arguments = parser.parse_args()
    logging.disable()
    torch.set_num_threads(2)
    torch.manual_seed(0)
    module = open_clip.create_model(arguments.architecture).eval().requires_grad_(False)
    model = tpt.wrap(module)
    loaded = peak_gb()
    image = torch.randint(256, (3, 375, 500), dtype=torch.uint8)
    views = tpt.augment_views(image, model.image_spec)
    print(f"torch {torch.__version__}, open_clip {open_clip.__version__}, {torch.get_num_threads()} threads")

    views_alone(module, views[:8], 8)
    prompts = {k: tpt.class_prompts(model, open_clip.IMAGENET_CLASSNAMES[:k]) for k in arguments.classes}
    first = {k: seconds(tpt.tpt_classify, model, image, p) for k, p in prompts.items()}
    times: dict[str, list[float]] = {"views alone": [], **{f"tpt_lib, K={k}": [] for k in prompts}}
    for _ in range(arguments.pairs):
        times["views alone"].append(min(seconds(views_alone, module, views, chunk) for chunk in (8, 16, 64)))
        for k, p in prompts.items():
            times[f"tpt_lib, K={k}"].append(seconds(tpt.tpt_classify, model, image, p))
    print(
        f"\nOne image, everything included, {arguments.pairs} rounds: median (from to), and over the views alone in each round"
    )
    for name, values in times.items():
        ratios = [a / b for a, b in zip(values, times["views alone"], strict=True)]
        print(
            f"  {name:20} {spread(values)}   {statistics.median(ratios):5.3f} ({min(ratios):.3f} to {max(ratios):.3f})"
        )
    for k, value in first.items():
        print(f"  first image, K={k:4}: {value:.2f} s")
    peak = peak_gb()
    print(
        f"  memory: {peak - loaded:.2f} GB over the process with the model loaded ({loaded:.2f} GB), graphs of every K kept"
    )

    k = min(prompts)
    features = tpt.encode_views(model, views)
    text = tpt.encode_prompts(model, prompts[k])
    step = seconds(lambda: plain_step(module, prompts[k], torch.randn_like(text), 77))
    beside = {
        "plain full-length TPT (encoding and its text step)": step + statistics.median(times["views alone"]),
        "averaged prediction (the views' encoding)": seconds(lambda: tpt.encode_views(model, views)),
        "zero-shot (one view's encoding, text features kept)": seconds(lambda: tpt.encode_views(model, views[:1])),
        "logits of 64 views": seconds(lambda: tpt.class_logits(model, features, text)),
    }
    print(f"\nBeside it, K={k}, one run each")
    for name, value in beside.items():
        print(f"  {name:52} {value:8.4f} s")
    if arguments.json:
        found = {"model": arguments.architecture, "times": times, "first": first, "beside": beside}
        with open(arguments.json, "w") as file:
            json.dump({**found, "peak_gb": peak, "loaded_gb": loaded}, file, indent=1)


if __name__ == "__main__":
    main()
