"""Cost of TPT over encoding its views: ViT-B/16, one image, 64 views, ImageNet names, float32, 2 threads.

Runs are interleaved in one process. Each round encodes the 64 views with the bare module, in chunks of the size that was
fastest before, makes the views, tunes and predicts from their features for each K and with a shortlist, and runs everything
from the image on for the first K. TPT over its views is taken from the parts, (encoding + views + tuning) / encoding: both
sides then share the seconds of encoding, whose noise is larger than all the rest. Memory is that of a process of its own for
each of them.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable
from functools import partial
from typing import Any

import open_clip
import torch
from harness import (
    Times,
    in_own_process,
    open_model,
    parser,
    peak_gb,
    plain_step,
    prepare,
    print_times,
    rounds,
    seconds,
    spread,
    write_json,
)
from torch import Tensor

import tpt_lib as tpt

BARS = {"K=200": 1.10, "K=1000": 1.30, "K=1000, shortlist 100": 1.10, "K=20000, shortlist 100": 1.15}
ADJECTIVES = (
    "red", "green", "blue", "black", "white", "old", "new", "small", "large", "wooden", "broken", "wet", "dry", "young",
    "bright", "dark", "striped", "spotted", "round", "tall",
)  # fmt: skip


def views_alone(module: Any, views: Tensor, chunk: int) -> None:
    with torch.inference_mode():
        for part in torch.split(views, chunk):
            module.encode_image(part)


def over_views(times: Times, name: str) -> list[float]:
    """Return what TPT costs over encoding its views, in each round, from its parts."""
    parts = zip(times["views alone"], times["making the views"], times[name], strict=True)
    return [(encoding + making + tuning) / encoding for encoding, making, tuning in parts]


def names(count: int) -> list[str]:
    """Return that many different names: ImageNet's, then ImageNet's with an adjective."""
    plain = list(dict.fromkeys(open_clip.IMAGENET_CLASSNAMES))
    kinds = ["", *(f"{word} " for word in ADJECTIVES)]
    return [f"{kind}{name}" for kind in kinds for name in plain][:count]


def print_memory(architecture: str, classes: int, shortlist: int | None) -> None:
    """Print the memory of two images in this process over the loaded model, and the seconds of the first, as JSON."""
    prepare(open_clip, quiet=True)
    _, model = open_model(architecture)
    prompts, image = tpt.class_prompts(model, names(classes)), torch.randint(256, (3, 375, 500), dtype=torch.uint8)
    loaded = peak_gb()
    first = seconds(partial(tpt.tpt_classify, shortlist=shortlist), model, image, prompts)
    tpt.tpt_classify(model, image, prompts, shortlist=shortlist)
    print(json.dumps({"gb": peak_gb() - loaded, "first": first}))


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--classes", type=int, nargs="+", default=[200, 1000])
    options.add_argument(
        "--shortlisted", type=int, nargs="*", default=[1000, 20_000], help="K, with a shortlist of --m"
    )
    options.add_argument("--m", type=int, default=100, help="classes in a shortlist")
    options.add_argument(
        "--memory", type=int, metavar="K", help="print the memory of one K, with --m 0 without a shortlist"
    )
    options.add_argument("--architecture", default="ViT-B-16", help="another one of open_clip's, for a quick trial")
    arguments = options.parse_args()
    if arguments.memory:
        print_memory(arguments.architecture, arguments.memory, arguments.m or None)
        return
    prepare(open_clip)
    module, model = open_model(arguments.architecture)
    image = torch.randint(256, (3, 375, 500), dtype=torch.uint8)
    views = tpt.augment_views(image, model.image_spec)

    trials = {chunk: min(seconds(views_alone, module, views, chunk) for _ in range(2)) for chunk in (8, 16, 64)}
    chunk = min(trials, key=lambda size: trials[size])
    features = tpt.encode_views(model, views)
    cases: list[tuple[int, int | None]] = [(k, None) for k in arguments.classes]
    cases += [(k, arguments.m) for k in arguments.shortlisted]
    prompts = {k: tpt.class_prompts(model, names(k)) for k, _ in cases}
    calls = {
        f"K={k}" + (f", shortlist {m}" if m else ""): partial(tpt.tpt_predict, model, prompts[k], features, shortlist=m)
        for k, m in cases
    }
    first = {name: seconds(call) for name, call in calls.items()}
    everything = partial(tpt.tpt_classify, model, image, prompts[cases[0][0]], shortlist=cases[0][1])
    measures: dict[str, Callable[[], float]] = {
        "views alone": partial(seconds, views_alone, module, views, chunk),
        "making the views": partial(seconds, tpt.augment_views, image, model.image_spec),
        **{name: partial(seconds, call) for name, call in calls.items()},
        f"everything, {next(iter(calls))}": partial(seconds, everything),
    }
    times = rounds(measures, arguments.pairs)
    over = {name: over_views(times, name) for name in calls}
    options_of = [("--memory", k, "--m", m or 0, "--architecture", arguments.architecture) for k, m in cases]
    memory = {name: in_own_process(__file__, *own)["gb"] for name, own in zip(calls, options_of, strict=True)}
    print(
        f"\nOne image, {arguments.pairs} rounds, chunks of {chunk}: median (min-max), and over the views alone in each round"
    )
    print_times(times, "views alone")
    print("\nTPT over its views; its first image, which computes and keeps text features; memory over the loaded model")
    for name in calls:
        bar = f"   bar {BARS[name]}" if name in BARS else ""
        print(f"  {name:22} {spread(over[name], '')}{bar} {first[name]:8.2f} s {memory[name]:8.2f} GB")

    k = min(prompts)
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
    found = {"model": arguments.architecture, "times": times, "over": over, "bars": BARS, "first": first}
    write_json(arguments.json, {**found, "beside": others, "memory_gb": memory})


if __name__ == "__main__":
    main()
