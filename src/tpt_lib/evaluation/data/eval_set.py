"""A dataset with what an evaluation needs to know about it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from torch import Tensor
from torch.utils.data import Dataset, Subset

from tpt_lib.evaluation.data.bongard_hoi import Problems
from tpt_lib.evaluation.data.folders import shown

__all__ = ["EvalSet", "ImageFiles"]

TEMPLATE = "a photo of a {}."


class ImageFiles(Dataset[tuple[str, int]]):
    """Image paths with their labels; nothing is read until someone does."""

    def __init__(self, paths: Sequence[str | os.PathLike[str]], labels: Sequence[int]) -> None:
        if len(paths) != len(labels):
            raise ValueError(f"ImageFiles: {len(paths)} paths need as many labels, but got {len(labels)}")
        self.paths = tuple(os.fspath(path) for path in paths)
        self.labels = tuple(int(label) for label in labels)

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int) -> tuple[str, int]:
        return self.paths[index], self.labels[index]


@dataclass(frozen=True, eq=False, repr=False)
class EvalSet:
    """A dataset with all that an evaluation needs to know of it.

    Args:
        name: what it is called in tables.
        samples: a torch dataset or a list of (image, label); an image is anything ``read_image`` takes, a label an int.
            Of Bongard-HOI, a dataset of problems.
        classes: the class names in the order of the labels.
        template: the prompt around a name.
        recipe: how views are made of its images, ``"crop"`` or ``"augmix"``.
        split: which part of the dataset it is.

    >>> EvalSet("two", [(torch.rand(3, 8, 8), 0), (torch.rand(3, 8, 8), 1)], ("cat", "dog"))
    <EvalSet two/test: 2 samples of 2 classes, 'a photo of a {}.', crop>
    """

    name: str
    samples: Dataset[Any] | Sequence[Any]
    classes: Sequence[str]
    template: str = TEMPLATE
    recipe: Literal["crop", "augmix"] = "crop"
    split: str = "test"

    def __post_init__(self) -> None:
        if isinstance(self.classes, str) or not all(isinstance(name, str) and name.strip() for name in self.classes):
            raise ValueError(f"EvalSet {self.name}: classes must be a list of names, but got {self.classes!r}")
        object.__setattr__(self, "classes", tuple(self.classes))
        if "{}" not in self.template:
            raise ValueError(
                f"EvalSet {self.name}: the template must have a {{}} for the name, but got {self.template!r}"
            )
        if len(self) == 0:
            raise ValueError(f"EvalSet {self.name}: it has no samples")
        _check_labels(self.name, _known_labels(self.samples), self.classes)

    def __len__(self) -> int:
        return len(self.samples)  # type: ignore[arg-type]

    @property
    def labels(self) -> list[int]:
        """The label of each sample; of a foreign dataset that does not list its labels, each sample is read for it.

        >>> import tpt_lib
        >>> images = [(torch.rand(3, 8, 8), i % 2) for i in range(8)]
        >>> train = EvalSet("two", images, ("cat", "dog"), split="train")
        >>> shots = train.take(tpt_lib.few_shot(train.labels, 3))
        >>> shots.labels
        [0, 0, 0, 1, 1, 1]
        """
        if isinstance(self.samples, Problems):
            raise ValueError(
                f"EvalSet {self.name}: problems have no labels; the truths of problem i are samples[i].truths"
            )
        known = _known_labels(self.samples)
        return [int(self.samples[i][1]) for i in range(len(self))] if known is None else known

    def take(self, indices: Sequence[int] | Tensor) -> EvalSet:
        """The same set with these samples only, in this order."""
        return replace(self, samples=Subset(self.samples, [int(i) for i in indices]))  # type: ignore[arg-type]

    def __repr__(self) -> str:
        what = f"{len(self)} samples of {len(self.classes)} classes"
        return f"<EvalSet {self.name}/{self.split}: {what}, {self.template!r}, {self.recipe}>"


def _known_labels(samples: Any) -> list[int] | None:
    """The labels, if they can be had without reading images."""
    if isinstance(samples, Subset):
        known = _known_labels(samples.dataset)
        return None if known is None else [known[i] for i in samples.indices]
    listed = samples.labels if isinstance(samples, ImageFiles) else getattr(samples, "targets", None)
    if listed is None:
        return None
    labels = torch.as_tensor(listed)
    return labels.tolist() if labels.ndim == 1 and not labels.is_floating_point() else None


def _check_labels(name: str, labels: list[int] | None, classes: Sequence[str]) -> None:
    if labels and (min(labels) < 0 or max(labels) >= len(classes)):
        raise ValueError(
            f"{name}: labels and names are out of step: labels are {min(labels)}..{max(labels)}, but there are {len(classes)} "
            f"names, {shown(classes)}, for 0..{len(classes) - 1}"
        )
