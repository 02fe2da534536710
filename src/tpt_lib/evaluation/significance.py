"""Compute intervals of an accuracy, and test the difference between two methods."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

__all__ = ["mcnemar", "paired_counts", "wilson"]

Sample = TypeVar("Sample")


def mcnemar(only_a: int, only_b: int) -> float:
    """Return the two-sided p-value of McNemar's exact test between two methods on the same samples.

    Args:
        only_a: number of samples that only the first method got right.
        only_b: number of samples that only the second method got right.

    Returns:
        The probability of counts at least as uneven if both methods were equally often right.

    >>> mcnemar(1, 5)
    0.21875
    """
    if only_a < 0 or only_b < 0:
        raise ValueError(f"mcnemar: counts must not be negative, but got {only_a} and {only_b}")
    n, fewer = only_a + only_b, min(only_a, only_b)
    term = tail = 1
    for i in range(fewer):
        term = term * (n - i) // (i + 1)
        tail += term
    return min(1.0, 2 * tail / 2**n)


def paired_counts(a: Mapping[Sample, bool], b: Mapping[Sample, bool]) -> dict[str, int | float]:
    """Return how two methods' answers compare on the samples that both have, with McNemar's p-value.

    Args:
        a: for each sample, whether the first method was right.
        b: the same for the second method.

    Returns:
        The number ``n`` of samples, the numbers that ``both``, ``only_a``, ``only_b`` and ``neither`` got right, and ``p``.

    >>> paired_counts({1: True, 2: True, 3: False}, {1: True, 2: False, 4: True})
    {'n': 2, 'both': 1, 'only_a': 1, 'only_b': 0, 'neither': 0, 'p': 1.0}
    """
    pairs = [(a[sample], b[sample]) for sample in a if sample in b]
    kinds = {"both": (True, True), "only_a": (True, False), "only_b": (False, True), "neither": (False, False)}
    counts = {name: pairs.count(kind) for name, kind in kinds.items()}
    return {"n": len(pairs), **counts, "p": mcnemar(counts["only_a"], counts["only_b"])}


def wilson(share: float, n: int, *, z: float = 1.96) -> tuple[float, float]:
    """Return Wilson's interval of a share of samples.

    Args:
        share: share of the samples that were right, from 0 to 1.
        n: number of samples, at least 1.
        z: number of standard deviations (default 1.96, for 95%).

    Returns:
        Its ends, from 0 to 1.

    >>> [round(end, 4) for end in wilson(0.5, 100)]
    [0.4038, 0.5962]
    """
    middle = (share + z * z / (2 * n)) / (1 + z * z / n)
    half = z / (1 + z * z / n) * (share * (1 - share) / n + z * z / (4 * n * n)) ** 0.5
    return max(0.0, middle - half), min(1.0, middle + half)
