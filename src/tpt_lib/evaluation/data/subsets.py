"""Parts of a dataset: few-shot samples and validation splits."""

from __future__ import annotations

from dataclasses import replace

import torch
from jaxtyping import Int
from torch import Tensor

from tpt_lib.evaluation.data.eval_set import EvalSet

__all__ = ["few_shot", "hold_out"]


def few_shot(labels: Int[Tensor, " n"] | list[int], shots: int, *, seed: int = 0) -> Int[Tensor, " m"]:
    """Indices of ``shots`` random samples of each class, in the order of the classes; all of a class that has fewer.

    Args:
        labels: the classes' indices ``(N,)``.
        shots: how many of each class.
        seed: fixes the choice.

    >>> few_shot([0, 0, 0, 1, 1, 1], 2).shape
    torch.Size([4])
    """
    labels = torch.as_tensor(labels)
    if shots < 1:
        raise ValueError(f"few_shot: shots must be at least 1, but got {shots}")
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(seed))
    return torch.cat([order[labels[order] == k][:shots] for k in labels.unique()])


def hold_out(dataset: EvalSet, fraction: float = 0.2, *, seed: int = 0) -> tuple[EvalSet, EvalSet]:
    """A set in two parts, the rest and a validation set, with the same share of every class in each.

    For sets that come without a validation split; of those that have one, ``load_dataset(…, split="val")`` is the paper's. CoOp
    made most of those in this way, with a fifth of each class.

    Args:
        dataset: what is divided; best not the test set.
        fraction: the share of each class that is held out, rounded: at least one sample, and never all of them.
        seed: fixes the choice.

    Returns:
        The rest and what is held out, each in the order of the set, as ``"rest-of-…"`` and ``"val-of-…"`` its split.

    >>> train = tpt_lib.EvalSet("two", [(torch.rand(3, 8, 8), i % 2) for i in range(10)], ("cat", "dog"), split="train")
    >>> rest, val = hold_out(train)
    >>> val, sorted(rest.labels)
    (<EvalSet two/val-of-train: 2 samples of 2 classes, 'a photo of a {}.', crop>, [0, 0, 0, 0, 1, 1, 1, 1])
    """
    if not 0 < fraction < 1:
        raise ValueError(f"hold_out: fraction must lie between 0 and 1, but got {fraction}")
    labels = torch.tensor(dataset.labels)
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(seed))
    held = torch.zeros(len(labels), dtype=torch.bool)
    for k in labels.unique():
        own = order[labels[order] == k]
        held[own[: min(len(own) - 1, max(1, round(fraction * len(own))))]] = True
    if not held.any():
        raise ValueError(f"hold_out: no class of {dataset.name} has two samples, so that nothing can be held out")
    rest, val = (dataset.take(part.nonzero()[:, 0]) for part in (~held, held))
    return replace(rest, split=f"rest-of-{dataset.split}"), replace(val, split=f"val-of-{dataset.split}")
