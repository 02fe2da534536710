"""Check the arguments of ``evaluate``, ``evaluate_bongard`` and ``encode_dataset``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import zip_longest
from typing import Literal, get_args

import torch

from tpt_lib.evaluation.data.class_names import permutation
from tpt_lib.evaluation.run.ray_cluster import require_ray
from tpt_lib.methods.cases import Case
from tpt_lib.prompts.class_prompts import ClassPrompts

__all__ = ["Backend", "check_batch_size", "check_classes", "check_last_batch", "check_seeds", "check_workers"]

Backend = Literal["local", "ray"]


def check_seeds(caller: str, seeds: Sequence[int]) -> None:
    """Refuse an empty list of seeds, and one that repeats a seed."""
    if not seeds:
        raise ValueError(f"{caller}: seeds must not be empty; pass at least one, such as seeds=[0]")
    if len(set(seeds)) < len(seeds):
        raise ValueError(f"{caller}: seeds must differ, but got {list(seeds)}")


def check_batch_size(caller: str, batch_size: int) -> None:
    """Refuse a batch size below 1."""
    if batch_size < 1:
        raise ValueError(f"{caller}: batch_size must be at least 1, but got {batch_size}")


def check_last_batch(smallest: Mapping[str, int], images: int, ranks: int, batch_size: int) -> None:
    """Refuse a batch size that leaves a rank a batch that is too small.

    Args:
        smallest: the smallest batch that each method takes.
        images: number of images.
        ranks: number of ranks that share them.
        batch_size: number of images in a batch.
    """
    name = max(smallest, key=smallest.__getitem__)
    shares = sorted({len(range(rank, images, ranks)) for rank in range(min(ranks, images))})

    def too_small(size: int) -> int | None:
        return next((share for share in shares if (share - 1) % size + 1 < smallest[name]), None)

    if (share := too_small(batch_size)) is not None:
        better = next((size for size in range(batch_size + 1, images + 1) if too_small(size) is None), None)
        fewer = ", or use fewer ranks" if ranks > 1 else ""
        raise ValueError(
            f"evaluate: {name!r} tunes batch norms, which need the statistics of {smallest[name]} or more images, but with "
            f"batch_size={batch_size} the last batch of {share} image(s) has {(share - 1) % batch_size + 1}; pass "
            + (f"more images{fewer}" if better is None else f"another batch_size, such as {better}")
        )


def check_workers(caller: str, num_workers: int | None, backend: str, device: torch.device) -> int:
    """Return the number of worker processes: 2 by default, or 0 next to a model on a CPU, whose cores they would take.

    Raises:
        ValueError: if there is no such backend, or the number is negative.
        ImportError: if the backend is Ray, and it is not installed.
    """
    if backend not in get_args(Backend):
        raise ValueError(f"{caller}: backend must be one of {', '.join(get_args(Backend))}, but got {backend!r}")
    if backend == "ray":
        require_ray()
    if num_workers is None:
        return 0 if backend == "local" and device.type == "cpu" else 2
    if num_workers < 0:
        raise ValueError(f"{caller}: num_workers must be 0 or more, but got {num_workers}")
    return num_workers


def check_classes(prompts: ClassPrompts, cases: Iterable[Case], classes: Sequence[str]) -> None:
    """Refuse prompts, of the run or of a method, whose classes are not those of the dataset, in its order."""
    owners = [("the prompts", prompts)]
    for case in cases:
        own = [case.prompts] if isinstance(case.prompts, ClassPrompts) else case.prompts
        owners += [(f"the prompts of {case.name!r}", one) for one in own]
    for owner, one in owners:
        if len(one.names) != len(classes):
            raise ValueError(
                f"evaluate: {owner} have {len(one.names)} classes and the dataset has {len(classes)}: class "
                f"{_first_difference(one.names, classes)}. Build them with class_prompts(model, dataset.classes)"
            )
        if said := permutation(one.names, classes):
            raise ValueError(
                f"evaluate: {owner} have the classes of the dataset in another order: {said}, as in the dataset. Build them "
                "with class_prompts(model, dataset.classes)"
            )


def _first_difference(names: Sequence[str], wanted: Sequence[str]) -> str:
    pairs = zip_longest(names, wanted)
    at, (a, b) = next((at, pair) for at, pair in enumerate(pairs) if pair[0] != pair[1])
    a, b = ("missing" if name is None else repr(name) for name in (a, b))
    return f"{at} is {a} in the prompts and {b} in the dataset"
