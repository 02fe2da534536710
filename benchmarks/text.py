"""What a TPT step's text features cost: ViT-B/16's text tower, ImageNet names, float32, 2 threads.

``python benchmarks/text.py`` prints tables (``--json FILE`` writes them too). Ratios are of runs interleaved in one process.
One step is the gradient of a loss on the features in the context, then the features at the new context.
"""

from __future__ import annotations

import argparse
import json
import logging
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import open_clip
import torch
import torch.nn.functional as F
from torch import Tensor

import tpt_lib as tpt

LR = 5e-3


def plain_step(module: Any, prompts: tpt.ClassPrompts, upstream: Tensor, length: int) -> Tensor:
    """The published implementations' step: every prompt at full length, forward, backward, forward."""

    def features(context: Tensor) -> Tensor:
        words = module.token_embedding(prompts.ids)
        x = torch.cat([words[:, :1], context.expand(len(words), -1, -1), words[:, 1 + len(context) :]], dim=1)
        x = x[:, :length] + module.positional_embedding[:length]
        x = module.transformer(x, attn_mask=module.attn_mask[:length, :length])
        x = module.ln_final(x)[torch.arange(len(x)), prompts.ids.argmax(dim=1)]
        return F.normalize(x @ module.text_projection, dim=-1)

    context = prompts.context.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(features(context), context, upstream)
    with torch.no_grad():
        return features(context - LR * gradient.sign())


def fast_step(model: tpt.ClipLike, prompts: tpt.ClassPrompts, upstream: Tensor) -> Tensor:
    """The library's step, from the second image on."""
    gradient = tpt.initial_text(model, prompts).gradients(upstream)[0]
    with torch.no_grad():
        return tpt.encode_prompts(model, prompts, prompts.context - LR * gradient.sign())


def seconds(call: Callable[..., object], *arguments: object) -> float:
    start = time.perf_counter()
    call(*arguments)
    return time.perf_counter() - start


def peak_gb() -> float:
    """The most this process ever had resident; ``getrusage`` would give a child its parent's peak."""
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) / 2**20


def spread(times: list[float]) -> str:
    return f"{statistics.median(times):8.3f} s   ({min(times):.3f} to {max(times):.3f})"


def setting(classes: int) -> tuple[Any, tpt.ClipLike, tpt.ClassPrompts, Tensor]:
    torch.manual_seed(0)
    module = open_clip.create_model("ViT-B-16").eval().requires_grad_(False)
    model = tpt.wrap(module)
    prompts = tpt.class_prompts(model, open_clip.IMAGENET_CLASSNAMES[:classes])
    return module, model, prompts, torch.randn(classes, 512)


def compare(classes: int, pairs: int) -> dict[str, Any]:
    """One step, plain against plain without padding against the library, interleaved."""
    module, model, prompts, upstream = setting(classes)
    longest = int(prompts.lengths.max())
    first = seconds(lambda: fast_step(model, prompts, upstream))
    want, got = plain_step(module, prompts, upstream, 77), fast_step(model, prompts, upstream)
    steps: dict[str, Callable[[], object]] = {
        "plain, 77 tokens": lambda: plain_step(module, prompts, upstream, 77),
        f"plain, cut to {longest} tokens": lambda: plain_step(module, prompts, upstream, longest),
        "tpt_lib": lambda: fast_step(model, prompts, upstream),
    }
    times: dict[str, list[float]] = {name: [] for name in steps}
    for _ in range(pairs):
        for name, step in steps.items():
            times[name].append(seconds(step))
    print(
        f"\nOne step's text cost, K={classes}, {pairs} interleaved runs: median (from to), and plain / tpt_lib in each run"
    )
    for name, values in times.items():
        ratios = [a / b for a, b in zip(values, times["tpt_lib"], strict=True)]
        print(
            f"  {name:28} {spread(values)}   {statistics.median(ratios):6.1f}x ({min(ratios):.1f} to {max(ratios):.1f})"
        )
    print(f"  tpt_lib, first image          {first:8.3f} s   (builds the graph that the others use)")
    print(f"  largest difference of the features after the step: {(want - got).abs().max():.1e}")
    return {"classes": classes, "times": times, "first": first, "difference": (want - got).abs().max().item()}


def growth(numbers: list[int], pairs: int) -> dict[str, Any]:
    """Time over the number of packed tokens."""
    rows = []
    print("\nGrowth, median of a step (from to)\n     K   tokens        seconds                     ms a token")
    for classes in numbers:
        _, model, prompts, upstream = setting(classes)
        fast_step(model, prompts, upstream)
        times = [seconds(fast_step, model, prompts, upstream) for _ in range(pairs)]
        tokens = int((prompts.lengths - prompts.prefix).sum())
        print(f"  {classes:4}   {tokens:6}   {spread(times)}   {1000 * statistics.median(times) / tokens:8.2f}")
        rows.append({"classes": classes, "tokens": tokens, "times": times})
    return {"growth": rows}


def memory(classes: int, chunk: int | None) -> None:
    """In a process of its own: resident memory with torch and the model, and the peak over three steps."""
    _, model, prompts, upstream = setting(classes)
    loaded = peak_gb()
    times = []
    for _ in range(3):
        start = time.perf_counter()
        gradient = tpt.initial_text(model, prompts, chunk=chunk).gradients(upstream)[0]
        with torch.no_grad():
            tpt.encode_prompts(model, prompts, prompts.context - LR * gradient.sign())
        times.append(time.perf_counter() - start)
    peak = peak_gb()
    print(json.dumps({"classes": classes, "chunk": chunk, "loaded_gb": loaded, "peak_gb": peak, "seconds": times[-1]}))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=7)
    parser.add_argument("--classes", type=int, default=200)
    parser.add_argument("--growth", type=int, nargs="+", default=[50, 100, 200, 400, 700, 1000], metavar="CLASSES")
    parser.add_argument("--json")
    parser.add_argument("--memory", nargs=2, metavar=("CLASSES", "CHUNK"), help="measure this alone, in this process")
    arguments = parser.parse_args()
    logging.disable()
    torch.set_num_threads(2)
    if arguments.memory:
        classes, chunk = map(int, arguments.memory)
        return memory(classes, chunk or None)
    print(f"torch {torch.__version__}, open_clip {open_clip.__version__}, {torch.get_num_threads()} threads")
    results = {**compare(arguments.classes, arguments.pairs), **growth(arguments.growth, arguments.pairs)}
    results["memory"] = []
    print(
        "\nMemory of the whole process: with torch and model loaded, at the peak of three steps, and a step's seconds"
    )
    for classes, chunk in ((200, 0), (max(arguments.growth), 0), (max(arguments.growth), 100)):
        command = [sys.executable, __file__, "--memory", str(classes), str(chunk)]
        row = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
        print(
            f"  K={classes:4}, chunk={row['chunk']}: {row['loaded_gb']:.2f} GB, {row['peak_gb']:.2f} GB, {row['seconds']:.2f} s"
        )
        results["memory"].append(row)
    if arguments.json:
        with open(arguments.json, "w") as file:
            json.dump(results, file, indent=1)
    return None


if __name__ == "__main__":
    main()
