"""What a Bongard problem costs beyond encoding its images: RN50's text tower, 6 + 6 supports, 64 steps, float32, 2 threads.

``python benchmarks/bongard.py`` prints a table (``--json FILE`` writes it too). Runs are interleaved in one process: in each
round the plain full-length loop on one problem, then the library on one problem, then on eight together.
"""

from __future__ import annotations

import argparse
import json
import logging
import statistics
from typing import Any

import open_clip
import torch
import torch.nn.functional as F
from text import peak_gb, seconds, spread
from torch import Tensor

import tpt_lib as tpt

STEPS, LR, TOGETHER = 64, 5e-3, 8


def plain_loop(module: Any, ids: Tensor, start: Tensor, supports: Tensor, labels: Tensor) -> Tensor:
    """The usual way: both prompts at full length in every step; ``start`` is the context and the two class tokens."""
    words = module.token_embedding(ids)
    context, names = (t.clone().requires_grad_() for t in (start[:-2], start[-2:, None]))
    optimizer = torch.optim.AdamW([context, names], lr=LR)

    def features() -> Tensor:
        n = len(context)
        x = torch.cat([words[:, :1], context.expand(2, -1, -1), names, words[:, 2 + n :]], dim=1)
        x = module.transformer(x + module.positional_embedding, attn_mask=module.attn_mask)
        x = module.ln_final(x)[torch.arange(2), ids.argmax(dim=1)] @ module.text_projection
        return F.normalize(x, dim=-1)

    for _ in range(STEPS):
        loss = F.cross_entropy(module.logit_scale.exp() * supports @ features().T, labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    with torch.no_grad():
        return features()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=7)
    parser.add_argument("--json")
    arguments = parser.parse_args()
    logging.disable()
    torch.set_num_threads(2)
    torch.manual_seed(0)
    module = open_clip.create_model("RN50").eval().requires_grad_(False)
    model = tpt.wrap(module)
    centres = torch.randn(TOGETHER, 2, 1, 1024)
    images = F.normalize(centres + torch.randn(TOGETHER, 2, 7, 1024), dim=-1)
    problems = [(sides[0, :6], sides[1, :6], sides[:, 6]) for sides in images]
    print(f"torch {torch.__version__}, open_clip {open_clip.__version__}, {torch.get_num_threads()} threads")

    ids = model.tokenize(["X X X X X."])
    labels = torch.tensor([0] * 6 + [1] * 6)
    start = tpt.gaussian_context(model, 6)
    supports = torch.cat(problems[0][:2])
    plain = plain_loop(module, ids.expand(2, -1), start, supports, labels)
    ours = tpt.bongard_tpt(model, *problems[0])
    logits = tpt.class_logits(model, problems[0][2], plain)
    print(f"logits of the queries, plain and ours: at most {(logits - ours.logits).abs().max():.1e} apart")

    tpt.bongard_tpt_many(model, problems, steps=1)
    loaded = peak_gb()
    times: dict[str, list[float]] = {"plain loop": [], "one problem": [], "eight, a problem": []}
    for _ in range(arguments.pairs):
        times["plain loop"].append(seconds(plain_loop, module, ids.expand(2, -1), start, supports, labels))
        times["one problem"].append(seconds(tpt.bongard_tpt, model, *problems[0]))
        times["eight, a problem"].append(seconds(tpt.bongard_tpt_many, model, problems) / TOGETHER)
    print(f"\n{STEPS} steps, {arguments.pairs} rounds: median (from to), and how many times faster than the plain loop")
    for name, values in times.items():
        ratios = [a / b for a, b in zip(times["plain loop"], values, strict=True)]
        ratio = f"{statistics.median(ratios):5.1f}x ({min(ratios):.1f} to {max(ratios):.1f})"
        print(f"  {name:18} {spread(values)}   {ratio}")
    print(f"  memory: {peak_gb() - loaded:.2f} GB over the process before them ({loaded:.2f} GB)")
    if arguments.json:
        with open(arguments.json, "w") as file:
            json.dump({"times": times, "memory_gb": peak_gb() - loaded}, file, indent=1)


if __name__ == "__main__":
    main()
