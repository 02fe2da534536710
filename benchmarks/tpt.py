"""Cost of TPT over encoding its views: ViT-B/16, one image, 64 views, ImageNet names, float32, 2 threads.

Runs are interleaved in one process. Each round encodes the 64 views alone, in chunks of three sizes of which the fastest
counts, then runs everything (views, encoding, tuning, prediction) for each K.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from functools import partial
from typing import Any

import open_clip
import torch
from harness import open_model, parser, peak_gb, plain_step, prepare, print_times, rounds, seconds, write_json
from torch import Tensor

import tpt_lib as tpt


def views_alone(module: Any, views: Tensor, chunk: int) -> None:
    with torch.inference_mode():
        for part in torch.split(views, chunk):
            module.encode_image(part)


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--classes", type=int, nargs="+", default=[200, 1000])
    options.add_argument("--architecture", default="ViT-B-16", help="another one of open_clip's, for a quick trial")
    arguments = options.parse_args()
    prepare(open_clip)
    module, model = open_model(arguments.architecture)
    loaded = peak_gb()
    image = torch.randint(256, (3, 375, 500), dtype=torch.uint8)
    views = tpt.augment_views(image, model.image_spec)

    views_alone(module, views[:8], 8)
    prompts = {k: tpt.class_prompts(model, open_clip.IMAGENET_CLASSNAMES[:k]) for k in arguments.classes}
    first = {k: seconds(tpt.tpt_classify, model, image, p) for k, p in prompts.items()}
    measures: dict[str, Callable[[], float]] = {
        "views alone": lambda: min(seconds(views_alone, module, views, chunk) for chunk in (8, 16, 64)),
        **{f"tpt_lib, K={k}": partial(seconds, tpt.tpt_classify, model, image, p) for k, p in prompts.items()},
    }
    times = rounds(measures, arguments.pairs)
    peak = peak_gb()
    print(f"\nOne image, {arguments.pairs} rounds: median (min-max), and over the views alone in each round")
    print_times(times, "views alone")
    for k, value in first.items():
        print(f"  first image, K={k:4}: {value:.2f} s")
    print(f"  memory: {peak - loaded:.2f} GB over the process with the model loaded ({loaded:.2f} GB), all graphs kept")

    k = min(prompts)
    features = tpt.encode_views(model, views)
    text = tpt.encode_prompts(model, prompts[k])
    step = seconds(plain_step, module, prompts[k], torch.randn_like(text))
    others = {
        "plain full-length TPT (encoding and its text step)": step + statistics.median(times["views alone"]),
        "averaged prediction (the views' encoding)": seconds(tpt.encode_views, model, views),
        "zero-shot (one view's encoding, text features kept)": seconds(tpt.encode_views, model, views[:1]),
        "logits of 64 views": seconds(tpt.class_logits, model, features, text),
    }
    print(f"\nFor comparison, K={k}, one run each")
    for name, value in others.items():
        print(f"  {name:52} {value:8.4f} s")
    found = {"model": arguments.architecture, "times": times, "first": first, "beside": others}
    write_json(arguments.json, {**found, "peak_gb": peak, "loaded_gb": loaded})


if __name__ == "__main__":
    main()
