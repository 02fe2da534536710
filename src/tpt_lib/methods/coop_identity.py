"""Identify a run of supervised prompt learning by the content of everything that its results depend on."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from tpt_lib.content import ContentError, describe, digest
from tpt_lib.models.identity import identify
from tpt_lib.models.protocol import ClipLike
from tpt_lib.prompts.class_prompts import ClassPrompts
from tpt_lib.types import OptimizerFactory
from tpt_lib.views.reading import each_image, read_image


def fit_identity(
    model: ClipLike,
    prompts: ClassPrompts,
    optimizer: OptimizerFactory,
    start: list[Tensor],
    training: tuple[Any, Any],
    validation: tuple[Any, Any] | None,
) -> dict[str, Any]:
    """Return what the results of a fit depend on, other than its numbers, described by content.

    Args:
        model: the model.
        prompts: where learning starts.
        optimizer: the function that makes the optimizer.
        start: the initial tokens and weights that are learned.
        training: images, features or a loader, and labels.
        validation: images or features, and labels; or None.

    Returns:
        The names of the classes, digests, and what ``identify`` returns.

    Raises:
        ValueError: if a loader or the optimizer cannot be described by its content.
    """
    try:
        made_by = describe(optimizer)
    except ContentError as error:
        raise ValueError(f"fit_coop: a checkpoint cannot identify this optimizer: {error}") from error
    return {
        "names": list(prompts.names),
        "tokens": digest([prompts.ids, prompts.roles]),
        "start": digest(start),
        "data": _data(*training),
        "validation": None if validation is None else _data(*validation),
        "optimizer": made_by,
        **identify(model),
    }


def _data(images: Any, labels: Any) -> str:
    """Return a digest of images or features and labels. Image files count by their bytes, wherever they are."""
    if labels is None:
        return _loaded(images)
    truth = torch.as_tensor(labels).long()
    if isinstance(images, Tensor):
        return digest([images, truth])
    return digest([*_images(images), truth])


def _images(images: Any) -> Iterator[Any]:
    import numpy as np

    for image in each_image(images):
        yield np.fromfile(image, dtype="uint8") if isinstance(image, str | os.PathLike) else read_image(image)


def _loaded(loader: Any) -> str:
    own = getattr(loader, "describe", None)
    if callable(own) or isinstance(loader, list | tuple):
        return digest([describe(loader)])
    raise ValueError(
        f"fit_coop: a checkpoint must identify its training data, but the content of a {type(loader).__name__} cannot be seen. "
        "Pass images and labels, or a list of batches; or give the loader a method describe() that returns a string, as in "
        "loader.describe = lambda: 'flowers, 16 shots'"
    )
