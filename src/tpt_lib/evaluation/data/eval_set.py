"""A dataset with everything an evaluation needs to know about it."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from typing import Any, get_args

from torch import Tensor
from torch.utils.data import Dataset, IterableDataset, Subset

from tpt_lib.evaluation.data.bongard_hoi import Problems
from tpt_lib.evaluation.data.folders import quoted
from tpt_lib.evaluation.data.registry import Recipe
from tpt_lib.evaluation.data.samples import as_label

__all__ = ["EvalSet", "ImageFiles"]

TEMPLATE = "a photo of a {}."


class ImageFiles(Dataset[tuple[str, int]]):
    """A torch dataset of (path, label) pairs; it never opens the files."""

    def __init__(self, paths: Sequence[str | os.PathLike[str]], labels: Sequence[int]) -> None:
        if len(paths) != len(labels):
            raise ValueError(f"ImageFiles: {len(paths)} paths need as many labels, but got {len(labels)}")
        self.paths = tuple(os.fspath(path) for path in paths)
        self.labels = tuple(as_label(label) for label in labels)

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int) -> tuple[str, int]:
        return self.paths[index], self.labels[index]


@dataclass(frozen=True, eq=False, repr=False)
class EvalSet:
    """A dataset with everything an evaluation needs to know about it.

    Args:
        name: its name in tables.
        samples: a torch dataset or a list of (image, label). An image is anything that ``read_image`` takes, a label is
            an int. For Bongard, a dataset of problems.
        classes: class names in the order of the labels.
        template: prompt with ``{}`` for the name (default ``"a photo of a {}."``).
        recipe: how views of its images are made, ``"crop"`` (default) or ``"augmix"``.
        split: name of the part of the dataset (default ``"test"``).
        root: folder that paths in run files are relative to (default None: they are written as the samples have them).

    Raises:
        ValueError: if the names, the template or the labels are unusable, or there are no samples.

    >>> EvalSet("two", [(torch.rand(3, 8, 8), 0), (torch.rand(3, 8, 8), 1)], ("cat", "dog"))
    <EvalSet two/test: 2 samples of 2 classes, 'a photo of a {}.', crop>
    """

    name: str
    samples: Dataset[Any] | Sequence[Any]
    classes: Sequence[str]
    template: str = TEMPLATE
    recipe: Recipe = "crop"
    split: str = "test"
    root: str | None = None

    def __post_init__(self) -> None:
        unordered = isinstance(self.classes, str | Set | Mapping) or not isinstance(self.classes, Iterable)
        listed = () if unordered else tuple(self.classes)
        if not listed or not all(isinstance(name, str) and name.strip() for name in listed):
            raise ValueError(f"EvalSet {self.name}: classes must be a list of names, but got {self.classes!r}")
        object.__setattr__(self, "classes", listed)
        if self.recipe not in get_args(Recipe):
            raise ValueError(
                f"EvalSet {self.name}: recipe must be one of {', '.join(get_args(Recipe))}, but got {self.recipe!r}"
            )
        if not isinstance(self.template, str) or "{}" not in self.template:
            raise ValueError(
                f"EvalSet {self.name}: the template must have a {{}} for the name, but got {self.template!r}"
            )
        indexed = hasattr(self.samples, "__len__") and hasattr(self.samples, "__getitem__")
        if not indexed or isinstance(self.samples, IterableDataset):
            raise ValueError(
                f"EvalSet {self.name}: samples must be a list or a dataset with a length, but got "
                f"{type(self.samples).__name__}; load_dataset(stream, classes=[…]) makes one from a stream"
            )
        if len(self) == 0:
            raise ValueError(f"EvalSet {self.name}: samples must not be empty")
        try:
            labels = listed_labels(self.samples)
        except ValueError as error:
            raise ValueError(f"EvalSet {self.name}: {error}") from error
        _check_labels(self.name, labels, self.classes)

    def __len__(self) -> int:
        return len(self.samples)  # type: ignore[arg-type]

    @property
    def labels(self) -> list[int]:
        """The label of each sample. If the dataset does not list its labels, every sample is read.

        >>> import tpt_lib
        >>> images = [(torch.rand(3, 8, 8), i % 2) for i in range(8)]
        >>> train = EvalSet("two", images, ("cat", "dog"), split="train")
        >>> shots = train.take(tpt_lib.evaluation.sample_few_shot(train.labels, 3))
        >>> shots.labels
        [0, 0, 0, 1, 1, 1]
        """
        if isinstance(self.samples, Problems):
            raise ValueError(
                f"EvalSet {self.name}: problems have no labels; the truths of problem i are samples[i].truths"
            )
        listed = listed_labels(self.samples)
        return [as_label(self.samples[i][1]) for i in range(len(self))] if listed is None else listed

    def take(self, indices: Sequence[int] | Tensor) -> EvalSet:
        """Return the same set with only these samples, in this order.

        Args:
            indices: ints below the number of samples. A mask of bools is refused; ``mask.nonzero()[:, 0]`` has its indices.

        Returns:
            A set that shares the samples with this one.
        """
        listed = [i.item() if isinstance(i, Tensor) and i.ndim == 0 else i for i in indices]
        if bad := [
            i for i in listed if isinstance(i, bool) or not hasattr(i, "__index__") or not -len(self) <= i < len(self)
        ]:
            raise ValueError(
                f"EvalSet {self.name}: indices must be ints below its {len(self)} samples, but one is {bad[0]!r}; for a "
                "mask, pass mask.nonzero()[:, 0]"
            )
        return replace(self, samples=Subset(self.samples, [int(i) for i in listed]))  # type: ignore[arg-type]

    def __repr__(self) -> str:
        what = f"{len(self)} samples of {len(self.classes)} classes"
        return f"<EvalSet {self.name}/{self.split}: {what}, {self.template!r}, {self.recipe}>"


def listed_labels(samples: Any) -> list[int] | None:
    """Return the labels if they are known without reading an image, else None."""
    if isinstance(samples, Subset):
        known = listed_labels(samples.dataset)
        return None if known is None else [known[i] for i in samples.indices]
    listed = samples.labels if isinstance(samples, ImageFiles) else getattr(samples, "targets", None)
    if isinstance(samples, list | tuple) and all(isinstance(one, list | tuple) and len(one) == 2 for one in samples):
        listed = [label for _, label in samples]
    if listed is None or getattr(listed, "ndim", 1) != 1:
        return None
    several = listed.tolist() if hasattr(listed, "tolist") else listed
    return [as_label(label, f"the label of sample {i}") for i, label in enumerate(several)]


def _check_labels(name: str, labels: list[int] | None, classes: Sequence[str]) -> None:
    if labels and (min(labels) < 0 or max(labels) >= len(classes)):
        raise ValueError(
            f"EvalSet {name}: labels and names do not match: labels are {min(labels)}..{max(labels)}, but there are "
            f"{len(classes)} names, {quoted(classes)}, for 0..{len(classes) - 1}"
        )
