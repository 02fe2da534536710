"""Return the label and the file of a sample of any dataset."""

from __future__ import annotations

import operator
import os
from pathlib import PurePath
from typing import Any

from torch import Tensor
from torch.utils.data import Subset

__all__ = ["as_label", "class_index", "listed_file", "shown_path"]


def class_index(label: Any, n_classes: int) -> int:
    """Return a label as the index of a class.

    Args:
        label: an int, or an integer of numpy or torch.
        n_classes: number of classes.

    Returns:
        The index.

    Raises:
        ValueError: if it is anything else, such as 0.7, or out of range.

    >>> class_index(torch.tensor(1), 2)
    1
    """
    try:
        index = as_label(label)
    except ValueError:
        index = -1
    if not 0 <= index < n_classes:
        raise ValueError(
            f"a label must be the index of a class, an int from 0 to {n_classes - 1}, but got {label!r:.80}"
        )
    return index


def as_label(label: Any, what: str = "a label") -> int:
    """Return a label as an int; refuse a bool, a float and anything else that is not the index of a class."""
    if isinstance(label, Tensor) and label.ndim == 0:
        label = label.item()
    if isinstance(label, bool) or not hasattr(label, "__index__"):  # numpy's bool has none
        raise ValueError(f"{what} must be an int, the index of its class, but got {label!r:.80}")
    return operator.index(label)


def listed_file(samples: Any, index: int) -> str | os.PathLike[str] | None:
    """Return the file of a sample without reading it, if the dataset lists its files, else None.

    Args:
        samples: a dataset. ``ImageFiles`` lists its ``paths``, torchvision's ``ImageFolder`` its ``samples``.
        index: index of the sample.

    Returns:
        The path, or None.
    """
    while isinstance(samples, Subset):
        samples, index = samples.dataset, samples.indices[index]
    listed = getattr(samples, "paths", getattr(samples, "samples", samples))
    item = listed[index] if isinstance(listed, list | tuple) and index < len(listed) else None
    file = item[0] if isinstance(item, list | tuple) and item else item
    return file if isinstance(file, str | os.PathLike) else None


def shown_path(file: Any, root: str | None) -> str | None:
    """Return the path of an image as run files have it.

    Args:
        file: the path of an image, or anything else, which is not a file.
        root: the dataset's folder, or None.

    Returns:
        The path with forward slashes, relative to the root if it is below it, or None if ``file`` is not a path.

    >>> shown_path("/data/pets/cat/1.png", "/data/pets"), shown_path(torch.rand(3, 8, 8), None)
    ('cat/1.png', None)
    """
    if not isinstance(file, str | os.PathLike):
        return None
    path = PurePath(file)
    return (path.relative_to(root) if root is not None and path.is_relative_to(root) else path).as_posix()
