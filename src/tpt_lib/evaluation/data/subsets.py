"""Take parts of a dataset: few-shot samples, validation splits and evenly spaced samples."""

from __future__ import annotations

from dataclasses import replace
from typing import SupportsIndex, TypeVar

import torch
from jaxtyping import Int
from torch import Tensor

from tpt_lib.evaluation.data.eval_set import EvalSet
from tpt_lib.features.store import FeatureStore

__all__ = ["sample_few_shot", "split_validation", "take_evenly"]

Data = TypeVar("Data", EvalSet, FeatureStore)


def sample_few_shot(labels: Int[Tensor, " n"] | list[int], shots: int, *, seed: int = 0) -> Int[Tensor, " m"]:
    """Return the indices of ``shots`` random samples per class.

    Args:
        labels: class index of each sample ``(N,)``.
        shots: number of samples per class; a class with fewer gives all of its samples.
        seed: fixes the choice (default 0).

    Returns:
        Indices into ``labels``, in the order of the classes.

    >>> sample_few_shot([0, 0, 0, 1, 1, 1], 2).shape
    torch.Size([4])
    """
    if not isinstance(shots, SupportsIndex) or shots.__index__() < 1:
        raise ValueError(f"sample_few_shot: shots must be an int of at least 1, but got {shots!r}")
    try:
        labels = torch.as_tensor(labels)
    except (TypeError, ValueError, RuntimeError):  # names, or nothing
        labels = torch.empty(0)
    if labels.ndim != 1 or not len(labels) or labels.is_floating_point():
        raise ValueError("sample_few_shot: labels must be a list or a tensor (N,) of ints, the class of each sample")
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(seed))
    return torch.cat([order[labels[order] == k][:shots] for k in labels.unique()])


def split_validation(dataset: EvalSet, fraction: float = 0.2, *, seed: int = 0) -> tuple[EvalSet, EvalSet]:
    """Split a dataset into a rest and a validation set, with the same share of every class in each.

    Use it for datasets without a validation split. Where the paper has one, ``load_dataset(…, split="val")`` loads it;
    CoOp made most of those in this way, with a fifth of each class.

    Args:
        dataset: the dataset to split, preferably not the test set.
        fraction: share of each class in the validation set, rounded to at least one sample and never all (default 0.2).
        seed: fixes the choice (default 0).

    Returns:
        The rest and the validation set, in the order of the dataset. Their splits are named ``"rest-of-…"`` and
        ``"val-of-…"``.

    >>> train = tpt_lib.EvalSet("two", [(torch.rand(3, 8, 8), i % 2) for i in range(10)], ("cat", "dog"), split="train")
    >>> rest, val = split_validation(train)
    >>> val, sorted(rest.labels)
    (<EvalSet two/val-of-train: 2 samples of 2 classes, 'a photo of a {}.', crop>, [0, 0, 0, 0, 1, 1, 1, 1])
    """
    if not 0 < fraction < 1:
        raise ValueError(f"split_validation: fraction must be between 0 and 1, but got {fraction}")
    labels = torch.tensor(dataset.labels)
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(seed))
    held_out = torch.zeros(len(labels), dtype=torch.bool)
    for k in labels.unique():
        own = order[labels[order] == k]
        held_out[own[: min(len(own) - 1, max(1, round(fraction * len(own))))]] = True
    if not held_out.any():
        raise ValueError(
            f"split_validation: every class of {dataset.name} has a single sample; a class needs two to be split"
        )
    rest, val = (dataset.take(part.nonzero()[:, 0]) for part in (~held_out, held_out))
    return replace(rest, split=f"rest-of-{dataset.split}"), replace(val, split=f"val-of-{dataset.split}")


def take_evenly(data: Data, limit: int) -> Data:
    """Return a number of samples, evenly spaced over a dataset or a store; all samples if there are not more.

    >>> data = tpt_lib.EvalSet("two", [(torch.rand(3, 8, 8), i % 2) for i in range(10)], ("cat", "dog"))
    >>> take_evenly(data, 4).split, take_evenly(data, 4).labels
    ('4 of test', [0, 0, 1, 1])
    """
    if limit >= len(data):
        return data
    if limit < 1:
        raise ValueError(f"the limit of samples must be at least 1, but is {limit}")
    spread = [i * len(data) // limit for i in range(limit)]
    if isinstance(data, FeatureStore):
        return data.select(spread)
    return replace(data.take(spread), split=f"{limit} of {data.split}")
