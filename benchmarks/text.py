"""Cost of the text features of one TPT step: ViT-B/16's text tower, ImageNet names, float32, 2 threads.

One step is the gradient of a loss on the features in the context, then the features at the new context. Ratios are of runs
interleaved in one process.
"""

from __future__ import annotations

import json
import statistics
from functools import partial
from typing import Any

import open_clip
import torch
from harness import (
    LR,
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
from tpt_lib.text.encode import open_encoder
from tpt_lib.text.initial import initial_text


def fast_step(model: tpt.ClipLike, prompts: tpt.ClassPrompts, upstream: Tensor, *, chunk: int | None = None) -> Tensor:
    """Take the library's step; from the second image on, the graph is there."""
    gradient = initial_text(open_encoder(model, prompts, chunk=chunk)).gradients(upstream)[0]
    with torch.no_grad():
        return tpt.encode_prompts(model, prompts, prompts.context - LR * gradient.sign())


def setting(classes: int) -> tuple[Any, tpt.ClipLike, tpt.ClassPrompts, Tensor]:
    module, model = open_model("ViT-B-16")
    prompts = tpt.class_prompts(model, open_clip.IMAGENET_CLASSNAMES[:classes])
    return module, model, prompts, torch.randn(classes, 512)


def compare(classes: int, pairs: int) -> dict[str, Any]:
    """Compare one step of the library with the plain one, and with the plain one without padding, interleaved."""
    module, model, prompts, upstream = setting(classes)
    longest = int(prompts.lengths.max())
    ours = partial(fast_step, model, prompts, upstream)
    first = seconds(ours)
    difference = (plain_step(module, prompts, upstream) - ours()).abs().max().item()
    steps = {
        "plain, 77 tokens": partial(seconds, plain_step, module, prompts, upstream, 77),
        f"plain, cut to {longest} tokens": partial(seconds, plain_step, module, prompts, upstream, longest),
        "tpt_lib": partial(seconds, ours),
    }
    times = rounds(steps, pairs)
    print(f"\nText cost of one step, K={classes}, {pairs} rounds: median (min-max), and over tpt_lib in each round")
    print_times(times, "tpt_lib", unit="x", digits=1)
    print(f"  tpt_lib, first image: {first:.3f} s (builds the graph that the others use)")
    print(f"  largest difference of the features after the step: {difference:.1e}")
    return {"classes": classes, "times": times, "first": first, "difference": difference}


def growth(numbers: list[int], pairs: int) -> list[dict[str, Any]]:
    """Measure time over the number of packed tokens."""
    rows = []
    print("\nGrowth of a step, median (min-max)\n     K   tokens        seconds                ms per token")
    for classes in numbers:
        _, model, prompts, upstream = setting(classes)
        fast_step(model, prompts, upstream)
        times = [seconds(fast_step, model, prompts, upstream) for _ in range(pairs)]
        tokens = int((prompts.lengths - prompts.prefix).sum())
        print(f"  {classes:4}   {tokens:6}   {spread(times)}   {1000 * statistics.median(times) / tokens:8.2f}")
        rows.append({"classes": classes, "tokens": tokens, "times": times})
    return rows


def memory(classes: int, chunk: int | None) -> dict[str, Any]:
    """Measure, in a process of its own, resident memory with torch and the model, and the peak over three steps."""
    _, model, prompts, upstream = setting(classes)
    loaded = peak_gb()
    times = [seconds(partial(fast_step, chunk=chunk), model, prompts, upstream) for _ in range(3)]
    return {"classes": classes, "chunk": chunk, "loaded_gb": loaded, "peak_gb": peak_gb(), "seconds": times[-1]}


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--classes", type=int, default=200)
    options.add_argument("--growth", type=int, nargs="+", default=[50, 100, 200, 400, 700, 1000], metavar="CLASSES")
    options.add_argument(
        "--memory", type=int, nargs=2, metavar=("CLASSES", "CHUNK"), help="measure only this, in this process"
    )
    arguments = options.parse_args()
    prepare(open_clip, quiet=bool(arguments.memory))
    if arguments.memory:
        classes, chunk = arguments.memory
        print(json.dumps(memory(classes, chunk or None)))
        return
    found = compare(arguments.classes, arguments.pairs)
    found["growth"] = growth(arguments.growth, arguments.pairs)
    found["memory"] = []
    print("\nMemory of the whole process: with torch and model loaded, at the peak of three steps; seconds per step")
    for classes, chunk in ((200, 0), (max(arguments.growth), 0), (max(arguments.growth), 100)):
        row = in_own_process(__file__, "--memory", classes, chunk)
        loaded, peak = row["loaded_gb"], row["peak_gb"]
        print(f"  K={classes:4}, chunk={row['chunk']}: {loaded:.2f} GB, {peak:.2f} GB, {row['seconds']:.2f} s")
        found["memory"].append(row)
    write_json(arguments.json, found)


if __name__ == "__main__":
    main()
