"""Tests between two methods."""

from __future__ import annotations

__all__ = ["mcnemar"]


def mcnemar(only_a: int, only_b: int) -> float:
    """McNemar's exact test: the two-sided p-value of two methods being as often right where just one of them is.

    Args:
        only_a: the number of samples on which the first method alone was right.
        only_b: the same of the second.

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
