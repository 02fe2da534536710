"""What the benchmarks share: the command line, clocks, interleaved rounds, tables, peak memory, and the plain text step.

Each benchmark runs from any folder as ``python benchmarks/NAME.py``, prints its tables and writes them with ``--json FILE``.
"""

from __future__ import annotations

import argparse
import json
import logging
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

import tpt_lib as tpt

LR = 5e-3
Times = dict[str, list[float]]


def parser(description: str | None, *, pairs: int = 7) -> argparse.ArgumentParser:
    """Return a parser with the options that every benchmark has."""
    found = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    found.add_argument("--pairs", type=int, default=pairs, help="number of rounds, each of which runs everything once")
    found.add_argument("--json", metavar="FILE", help="write the measurements to this file")
    return found


def prepare(*packages: ModuleType, threads: int = 2, quiet: bool = False) -> None:
    """Set the number of threads, silence logging, and print the versions that the numbers depend on."""
    logging.disable()
    torch.set_num_threads(threads)
    versions = ", ".join(f"{package.__name__} {package.__version__}" for package in (torch, *packages))
    if not quiet:
        print(f"{versions}, {torch.get_num_threads()} thread{'s' if threads > 1 else ''}")


def open_model(architecture: str) -> tuple[Any, tpt.ClipLike]:
    """Return a module of open_clip with seeded random weights, and the same module wrapped."""
    import open_clip

    torch.manual_seed(0)
    module = open_clip.create_model(architecture).eval().requires_grad_(False)
    return module, tpt.wrap(module)


def seconds(call: Callable[..., object], *arguments: object, clock: Callable[[], float] = time.perf_counter) -> float:
    """Return the seconds that a call takes."""
    start = clock()
    call(*arguments)
    return clock() - start


def rounds(measures: Mapping[str, Callable[[], float]], pairs: int) -> Times:
    """Take each measure once per round, one after the other, so that a slow moment of the machine affects all of them."""
    found: Times = {name: [] for name in measures}
    for _ in range(pairs):
        for name, measure in measures.items():
            found[name].append(measure())
    return found


def ratios(values: list[float], others: list[float]) -> list[float]:
    """Return the ratio in each round."""
    return [a / b for a, b in zip(values, others, strict=True)]


def spread(values: list[float], unit: str = " s ", digits: int = 3) -> str:
    """Return "median (min-max)"."""
    return f"{statistics.median(values):8.{digits}f}{unit}  ({min(values):.{digits}f}-{max(values):.{digits}f})"


def print_times(
    times: Times, base: str, *, inverse: bool = False, unit: str = "", digits: int = 3, note: str = ""
) -> None:
    """Print a line for each name: its times, and their ratio to those of ``base``, or with ``inverse`` the other way round."""
    width = max(map(len, times))
    for name, values in times.items():
        pair = (times[base], values) if inverse else (values, times[base])
        print(f"  {name:{width}} {spread(values)}   {spread(ratios(*pair), unit, digits)}{note}")


def peak_gb() -> float:
    """Return the peak of this process's resident memory; ``getrusage`` would give a child its parent's peak."""
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) / 2**20


def in_own_process(file: str, *arguments: object) -> Any:
    """Run a benchmark with these arguments in a process of its own, and return the JSON it prints."""
    command = [sys.executable, file, *map(str, arguments)]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def write_json(path: str | None, found: Mapping[str, Any]) -> None:
    """Write the measurements, if a file was asked for."""
    if path:
        Path(path).write_text(json.dumps(found, indent=1))


def plain_step(module: Any, prompts: tpt.ClassPrompts, upstream: Tensor, length: int = 77) -> Tensor:
    """Take the published implementations' step: every prompt at full length, forward, backward, forward."""

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
