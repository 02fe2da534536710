"""Compare two lists of class names, so that no accuracy is computed with permuted labels."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["permutation"]


def permutation(names: Sequence[str], wanted: Sequence[str]) -> str | None:
    """Return the first difference between two lists of names, if one is a permutation of the other.

    Convention:
        ``_`` is read as a space, and case is ignored. Lists that share only some names are not permutations, since a caller
        may replace names by better ones.

    Args:
        names: class names.
        wanted: class names in the order of the labels.

    Returns:
        The difference, or None if both lists have the same order, or different names.

    >>> permutation(["dog", "cat"], ["cat", "Dog"])
    "class 0 is 'dog' and should be 'cat'"
    """
    plain, right = ([" ".join(name.replace("_", " ").casefold().split()) for name in each] for each in (names, wanted))
    if sorted(plain) != sorted(right) or plain == right:
        return None
    at = next(i for i, (a, b) in enumerate(zip(plain, right, strict=True)) if a != b)
    return f"class {at} is {names[at]!r} and should be {wanted[at]!r}"
