"""Type aliases and option dictionaries that signatures share."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypedDict

import torch
from torch import Tensor
from torch.utils.data import Dataset

if TYPE_CHECKING:
    import numpy.typing
    import PIL.Image

    ImageLike = PIL.Image.Image | Tensor | numpy.typing.NDArray[Any] | str | os.PathLike[str]
    Images = ImageLike | Sequence[ImageLike] | Dataset[Any]
else:
    ImageLike = Images = Any

__all__ = [
    "ImageLike",
    "Images",
    "Objective",
    "OptimizerFactory",
    "PathLike",
    "Recipe",
    "Regularizer",
    "Seed",
    "Select",
    "UnseededViewOptions",
    "ViewOptions",
    "check_options",
]

PathLike = str | os.PathLike[str]
Seed = int | torch.Generator
Recipe = Literal["crop", "augmix"] | Callable[[Tensor, tuple[int, int], int, torch.Generator], Tensor]
Select = Callable[[Tensor], Tensor]
Objective = Callable[[Tensor], Tensor]
Regularizer = Callable[[Tensor], Tensor]
OptimizerFactory = Callable[..., torch.optim.Optimizer]


class UnseededViewOptions(TypedDict, total=False):
    """The keywords of ``augment_views`` without the seed, for functions that have several seeds."""

    n_views: int
    recipe: Recipe
    scale: tuple[float, float]
    ratio: tuple[float, float]
    severity: int | float


class ViewOptions(UnseededViewOptions, total=False):
    """How views are made: the keywords of ``augment_views``, which every function that makes views takes."""

    seed: Seed


def kind_of(value: object) -> str:
    """Return the type of a value for error messages; for a tensor, its dtype and shape.

    >>> kind_of(torch.zeros(2, 3)), kind_of([1])
    ('torch.float32 of shape (2, 3)', 'list')
    """
    return f"{value.dtype} of shape {tuple(value.shape)}" if isinstance(value, Tensor) else type(value).__name__


def check_options(caller: str, options: Mapping[str, object], known: type | Sequence[str], *, advice: str = "") -> None:
    """Refuse keywords that a ``TypedDict`` or a list of names does not have, before any work is done.

    >>> check_options("tpt_classify", {"n_view": 8}, ViewOptions)
    Traceback (most recent call last):
    TypeError: tpt_classify: unknown keyword 'n_view'; did you mean 'n_views'?
    """
    names = known.__annotations__ if isinstance(known, type) else known
    if unknown := [name for name in options if name not in names]:
        import difflib

        near = difflib.get_close_matches(unknown[0], names, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"it takes {', '.join(names)}{advice}"
        raise TypeError(f"{caller}: unknown keyword {unknown[0]!r}; {hint}")
