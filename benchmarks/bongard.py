"""Cost of a Bongard problem over encoding its images: RN50's text tower, 6 + 6 supports, 64 steps, float32, 2 threads.

Runs are interleaved in one process. Each round runs the plain full-length loop on one problem, then the library on one
problem, then the library on eight together.
"""

from __future__ import annotations

from typing import Any

import open_clip
import torch
import torch.nn.functional as F
from harness import LR, open_model, parser, peak_gb, prepare, print_times, rounds, seconds, write_json
from torch import Tensor

import tpt_lib as tpt

STEPS, TOGETHER = 64, 8


def plain_loop(module: Any, ids: Tensor, start: Tensor, supports: Tensor, labels: Tensor) -> Tensor:
    """Tune as usual, both prompts at full length in every step; ``start`` is the context and the two class tokens."""
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
    arguments = parser(__doc__).parse_args()
    prepare(open_clip)
    module, model = open_model("RN50")
    centers = torch.randn(TOGETHER, 2, 1, 1024)
    images = F.normalize(centers + torch.randn(TOGETHER, 2, 7, 1024), dim=-1)
    problems = [(sides[0, :6], sides[1, :6], sides[:, 6]) for sides in images]
    positives, negatives, queries = problems[0]

    ids = model.tokenize(["X X X X X."]).expand(2, -1)
    start = tpt.gaussian_context(model, 6)
    plain = (module, ids, start, torch.cat([positives, negatives]), torch.tensor([0] * 6 + [1] * 6))
    ours = tpt.bongard_tpt(model, *problems[0])
    logits = tpt.class_logits(model, queries, plain_loop(*plain))
    print(f"logits of the queries, plain and ours: at most {(logits - ours.logits).abs().max():.1e} apart")

    tpt.bongard_tpt_many(model, problems, steps=1)
    loaded = peak_gb()
    measures = {
        "plain loop": lambda: seconds(plain_loop, *plain),
        "one problem": lambda: seconds(tpt.bongard_tpt, model, *problems[0]),
        "eight, per problem": lambda: seconds(tpt.bongard_tpt_many, model, problems) / TOGETHER,
    }
    times = rounds(measures, arguments.pairs)
    more = peak_gb() - loaded
    print(f"\n{STEPS} steps, {arguments.pairs} rounds: median (min-max), and how many times faster than the plain loop")
    print_times(times, "plain loop", inverse=True, unit="x", digits=1)
    print(f"  memory: {more:.2f} GB over the process before them ({loaded:.2f} GB)")
    write_json(arguments.json, {"times": times, "memory_gb": more})


if __name__ == "__main__":
    main()
