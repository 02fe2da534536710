"""Order the samples of a stream: as in the dataset, shuffled, by class, by a Dirichlet distribution, or by domain.

Every order is determined by a seed and contains each sample once.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Hashable, Sequence
from functools import partial
from itertools import pairwise
from pathlib import PurePath
from typing import Any

import torch
from torch.utils.data import Subset

from tpt_lib.evaluation.data.eval_set import EvalSet, listed_labels
from tpt_lib.evaluation.data.samples import listed_file
from tpt_lib.features.store import FeatureStore

__all__ = ["ORDERS", "dirichlet_order", "grouped_order", "sample_order", "shuffled_order"]

ORDERS = ("dataset", "shuffle", "by-class", "dirichlet", "domains")
CONCENTRATION = 0.1


def sample_order(caller: str, dataset: EvalSet | FeatureStore, name: str) -> Callable[[int], list[int]]:
    """Return a function from a seed to the order of a dataset's samples.

    Args:
        caller: the function to name in errors.
        dataset: the dataset, or a store of its features. No image is read.
        name: one of ``ORDERS``. ``"by-class"`` sorts by label and ``"domains"`` by domain; both shuffle inside. Domains
            are the dataset's attribute ``domains``, one per sample, or folders in ``DOMAIN/CLASS/FILE``. ``"dirichlet:0.5"``
            sets the concentration (default 0.1).

    Returns:
        The function. Under ``"dataset"`` the seed has no effect.

    Raises:
        ValueError: if there is no such order, or the dataset lacks the labels or domains that it needs.
    """
    kind, colon, number = name.partition(":")
    if kind not in ORDERS or (colon and kind != "dirichlet"):
        raise ValueError(
            f"{caller}: order must be one of {', '.join(ORDERS)} or such as 'dirichlet:0.5', but got {name!r}"
        )
    if kind == "dataset":
        return lambda _: list(range(len(dataset)))
    if kind == "shuffle":
        return partial(shuffled_order, len(dataset))
    if kind == "domains":
        return partial(grouped_order, _by_appearance(_domains(caller, dataset)))
    labels = _labels(dataset)
    if labels is None:
        raise ValueError(
            f"{caller}: order={name!r} needs the labels before images are read, but {dataset.name} does not list them; give "
            "its dataset a list `targets`, or use ImageFiles(paths, labels)"
        )
    if kind == "by-class":
        return partial(grouped_order, labels)
    return partial(dirichlet_order, labels, concentration=_concentration(caller, number if colon else CONCENTRATION))


def shuffled_order(n: int, seed: int) -> list[int]:
    """Return the numbers below ``n`` in random order.

    >>> sorted(shuffled_order(4, seed=0))
    [0, 1, 2, 3]
    """
    return torch.randperm(n, generator=torch.Generator().manual_seed(seed)).tolist()


def grouped_order(groups: Sequence[int], seed: int) -> list[int]:
    """Return the samples group by group, in random order within each.

    Args:
        groups: number of each sample's group, such as its label. Lower ones come first.
        seed: fixes the order inside a group.

    Returns:
        The order.

    >>> [index % 2 for index in grouped_order([0, 1, 0, 1], seed=0)]
    [0, 0, 1, 1]
    """
    return sorted(shuffled_order(len(groups), seed), key=groups.__getitem__)


def dirichlet_order(labels: Sequence[int], seed: int, *, concentration: float = CONCENTRATION) -> list[int]:
    r"""Return the samples in an order in which classes come in bursts.

    The stream has as many parts as there are classes. The samples of each class are divided among the parts by shares
    :math:`\sim \mathrm{Dir}(c, …, c)`, and each part is shuffled.

    Args:
        labels: class index of each sample.
        seed: fixes the shares and the order inside a part.
        concentration: :math:`c`, above 0 (default 0.1). A small one puts most of a class into one part; a large one spreads
            every class evenly.

    Returns:
        The order.

    >>> sorted(dirichlet_order([0, 0, 1, 1], seed=0))
    [0, 1, 2, 3]
    """
    import numpy as np

    own: dict[int, list[int]] = {}
    for index in shuffled_order(len(labels), seed):
        own.setdefault(labels[index], []).append(index)
    draw = np.random.default_rng(seed % 2**64)
    shares = draw.dirichlet([concentration] * len(own), size=len(own))
    parts = [0] * len(labels)
    for label, row in zip(sorted(own), shares.cumsum(axis=1), strict=True):
        cuts = [0, *(round(share * len(own[label])) for share in row[:-1].tolist()), len(own[label])]
        for part, (first, last) in enumerate(pairwise(cuts)):
            for index in own[label][first:last]:
                parts[index] = part
    return sorted(draw.permutation(len(labels)).tolist(), key=parts.__getitem__)


def _concentration(caller: str, text: str | float) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value < math.inf:
        raise ValueError(
            f"{caller}: the concentration of a Dirichlet order must be a number above 0, as in 'dirichlet:0.5', but got "
            f"{text!r}"
        )
    return value


def _by_appearance(names: Sequence[Hashable]) -> list[int]:
    """Number the names in the order of their first appearance."""
    numbers: dict[Hashable, int] = {}
    return [numbers.setdefault(name, len(numbers)) for name in names]


def _labels(dataset: EvalSet | FeatureStore) -> list[int] | None:
    return dataset.labels.tolist() if isinstance(dataset, FeatureStore) else listed_labels(dataset.samples)


def _domains(caller: str, dataset: EvalSet | FeatureStore) -> list[Hashable]:
    """Return the domain of each sample: as the dataset lists it, or the folder above that of its class."""
    listed = None if isinstance(dataset, FeatureStore) else _listed_domains(dataset.samples)
    if listed is None:
        listed = [None if file is None else PurePath(os.path.abspath(file)).parent.parent for file in _files(dataset)]
        if None in listed or len(set(listed)) == 1:
            raise ValueError(
                f"{caller}: order='domains' needs the domain of each sample, but {dataset.name} has none; give its "
                "dataset a list `domains`, or put its files into folders DOMAIN/CLASS/FILE"
            )
        labels = _labels(dataset)
        if labels is not None and len(set(zip(labels, listed, strict=True))) == len(set(labels)):
            raise ValueError(
                f"{caller}: order='domains' takes DOMAIN of DOMAIN/CLASS/FILE, but no class of {dataset.name} is in more than "
                "one such folder, so these are groups of classes; give its dataset a list `domains`"
            )
    return listed


def _files(dataset: EvalSet | FeatureStore) -> list[Any]:
    if isinstance(dataset, FeatureStore):
        return [dataset.sample_path(i) for i in range(len(dataset))]
    return [listed_file(dataset.samples, i) for i in range(len(dataset))]


def _listed_domains(samples: Any) -> list[Hashable] | None:
    """Return the attribute ``domains`` of a dataset, or of the dataset of a subset."""
    if isinstance(samples, Subset):
        known = _listed_domains(samples.dataset)
        return None if known is None else [known[i] for i in samples.indices]
    domains = getattr(samples, "domains", None)
    if domains is None:
        return None
    several = list(domains.tolist() if hasattr(domains, "tolist") else domains)
    if len(several) != len(samples):
        raise ValueError(f"`domains` must have one entry per sample, {len(samples)}, but has {len(several)}")
    return several
