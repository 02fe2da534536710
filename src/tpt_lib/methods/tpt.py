"""Test-time prompt tuning from an image to a prediction."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from tpt_lib.features.encode import encode_views
from tpt_lib.logits import class_logits
from tpt_lib.models.protocol import ClipLike
from tpt_lib.prediction import Prediction
from tpt_lib.prompts.class_prompts import ClassPrompts, class_prompts
from tpt_lib.tuning import tune_prompt
from tpt_lib.views.augment import augment_views

__all__ = ["tpt_classify", "tpt_predict"]


def tpt_predict(
    model: ClipLike, prompts: ClassPrompts, features: Float[Tensor, "*b n e"], **tuning: Any
) -> Prediction | list[Prediction]:
    """TPT on the features of an image's views: tune, then classify the plain image (section 3.2).

    Every method of the library has this shape, so that methods can share one encoding of the views.

    Args:
        model: the model.
        prompts: where tuning starts.
        features: normalised features ``(N, E)``, row 0 the plain image; ``(B, N, E)`` for several images.
        **tuning: goes to ``tune_prompt`` (``steps=``, ``lr=``, ``select=``, ``objective=``, …).

    >>> prompts = tpt_lib.class_prompts(model, ["cat", "dog", "red panda"])
    >>> views = torch.nn.functional.normalize(torch.randn(64, 256), dim=-1)
    >>> prediction = tpt_predict(model, prompts, views)
    >>> prediction.label in prompts.names, prediction.loss_after < prediction.loss_before
    (True, True)
    """
    return (
        _predict(model, prompts, features, **tuning)
        if features.ndim == 3
        else _predict(model, prompts, features[None], **tuning)[0]
    )


def _predict(model: ClipLike, prompts: ClassPrompts, views: Tensor, **tuning: Any) -> list[Prediction]:
    tuned = tune_prompt(model, prompts, views, **tuning)
    before = class_logits(model, views[:, :1], tuned.initial_features)[:, 0]
    after = class_logits(model, views[:, :1], tuned.text_features)[:, 0]
    steps = tuned.losses.shape[1] - 1
    return [
        Prediction(
            names=prompts.names,
            logits=after[i],
            zero_shot=Prediction(prompts.names, before[i]),
            tuned=steps > 0 and applied,
            loss_before=float(tuned.losses[i, 0]) if applied else None,
            loss_after=float(tuned.losses[i, -1]) if applied else None,
            selected=tuned.selected[i],
            context=tuned.context[i],
        )
        for i, applied in enumerate(tuned.applied.tolist())
    ]


def tpt_classify(
    model: ClipLike,
    images: Any,
    classes: Sequence[str] | ClassPrompts,
    *,
    n_views: int = 64,
    recipe: str | Callable[..., Tensor] = "crop",
    seed: int | torch.Generator = 0,
    batch: int = 8,
    **tuning: Any,
) -> Prediction | list[Prediction]:
    """Classify one image, or many, each with a prompt tuned to it: the paper's method with the paper's settings.

    Args:
        model: the model.
        images: one image (a PIL image, path, array, or tensor ``(3, H, W)``); a list of them or a tensor
            ``(B, 3, H, W)``; or a ``DataLoader`` of views ``(N, 3, H, W)``, batched or not.
        classes: class names, or prompts from ``class_prompts`` (another template, a CoOp context, …).
        n_views: how many views of each image, the plain one included.
        recipe: ``"crop"`` as for ImageNet and its variants, ``"augmix"`` as for fine-grained sets, or your own.
        seed: fixes the views of an image, whatever is classified beside it.
        batch: how many images are tuned together; no result depends on it.
        **tuning: goes to ``tune_prompt`` (``steps=``, ``lr=``, ``select=``, ``objective=``, …).

    Returns:
        A ``Prediction``; a list of them for many images.

    >>> image = torch.randint(256, (3, 60, 80), dtype=torch.uint8)
    >>> prediction = tpt_classify(model, image, ["cat", "dog", "red panda"], n_views=8)
    >>> prediction.tuned, prediction.zero_shot.tuned
    (True, False)
    """
    prompts = classes if isinstance(classes, ClassPrompts) else class_prompts(model, classes)
    if batch < 1:
        raise ValueError(f"tpt_classify: batch must be at least 1, but got {batch}")
    device = prompts.context.device
    if isinstance(images, torch.utils.data.DataLoader):
        many, views = True, _loaded(images)
    else:
        many = isinstance(images, list | tuple) or (isinstance(images, Tensor) and images.ndim == 4)
        keywords: Any = {"n_views": n_views, "recipe": recipe, "seed": seed, "device": device}
        views = (augment_views(image, model.image_spec, **keywords) for image in (images if many else [images]))
    features = (encode_views(model, each.to(device)) for each in views)
    predictions: list[Prediction] = []
    while group := list(islice(features, batch)):
        predictions += _predict(model, prompts, torch.stack(group), **tuning)
    return predictions if many else predictions[0]


def _loaded(loader: Iterable[Any]) -> Iterator[Tensor]:
    """The views of each image ``(N, 3, H, W)`` from a loader that yields them, batches of them, or either with labels."""
    for item in loader:
        views = item[0] if isinstance(item, list | tuple) else item
        yield from (views if views.ndim == 5 else [views])
