"""Classify images with any method."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from itertools import islice

import torch
from torch import Tensor
from typing_extensions import Unpack

from tpt_lib.features.encode import encode_views
from tpt_lib.methods.base import MethodEntry, get_method
from tpt_lib.methods.cases import MethodLike, as_cases
from tpt_lib.methods.reward import Reward, judge
from tpt_lib.methods.stream import OnlineLike, as_online, stream
from tpt_lib.models.protocol import ClipLike
from tpt_lib.prediction import Prediction
from tpt_lib.prompts.class_prompts import ClassPrompts, class_prompts
from tpt_lib.types import ImageLike, Images, ViewOptions, check_options
from tpt_lib.views.augment import augment_views
from tpt_lib.views.reading import are_several, each_image
from tpt_lib.views.settings import ViewSettings

__all__ = ["classify"]


def classify(
    model: ClipLike,
    images: Images,
    classes: Sequence[str] | ClassPrompts,
    *,
    method: MethodLike | OnlineLike = "tpt",
    preset: str | None = None,
    reward: Reward | None = None,
    batch_size: int = 8,
    **views: Unpack[ViewOptions],
) -> Prediction:
    """Classify one image, or several, with any method.

    Convention: with an online method, such as ``"tda"``, several images are a stream in the order given. Each prediction
    depends on the images before it. Every call starts with a new state; ``stream`` takes one to continue from.

    Args:
        model: the model.
        images: one image (a PIL image, path, array, or tensor ``(3, H, W)``); or several: a list, a tuple, a tensor
            ``(B, 3, H, W)``, or a dataset of images or of tuples that start with one.
        classes: class names, or prompts from ``class_prompts`` (another template, a CoOp context, …).
        method: a name from ``list_methods()`` (default ``"tpt"``) or a function of the same form. ``functools.partial`` gives a
            method other settings, such as ``partial(tpt_predict, steps=4)``. Or an online method: a name from
            ``list_methods(online=True)``, or what ``tda(…)`` and the others return.
        preset: a dataset whose settings the method takes from its authors, such as ``"imagenet-a"`` (default None).
        reward: a pair (model, prompts) of a second CLIP, or a list of pairs, for methods that need a reward (default None). It
            sees the same boxes of the image at its own size.
        batch_size: number of images given to the method together (default 8). Affects speed and memory, not results, except
            for ``"tent"``, which learns from batches.
        **views: the keywords of ``augment_views``: ``n_views=64``, ``recipe="crop"``, ``seed=0``, ….

    Returns:
        A prediction; for several images a batch of them.

    >>> image = torch.randint(256, (3, 60, 80), dtype=torch.uint8)
    >>> classify(model, [image, image], ["cat", "dog"], method="view_average", n_views=4).logits.shape
    torch.Size([2, 2])
    """
    if batch_size < 1:
        raise ValueError(f"classify: batch_size must be at least 1, but got {batch_size}")
    check_options(
        "classify",
        views,
        ViewOptions,
        advice=". For settings of a method, pass method=functools.partial(tpt_predict, steps=4)",
    )
    several, settings = are_several(images), ViewSettings.of("classify", **views)
    entry = get_method(method, preset=preset)
    prompts = classes if isinstance(classes, ClassPrompts) else class_prompts(model, classes)
    if entry.online:
        if reward is not None:
            raise ValueError(f"classify: reward was given, but {entry.name!r} needs none")
        found = _in_order(entry, model, images, prompts, settings, batch_size)
        return _one_or_several(found, several)
    (case,) = as_cases("classify", entry, prompts, reward=reward)

    def given(image: ImageLike) -> tuple[Tensor, list[Tensor]]:
        made = augment_views(image, model.image_spec, device=prompts.context.device, **vars(settings))
        judged = judge(case.rewards, image, made, model.image_spec, settings)
        return made if case.needs_views else encode_views(model, made), judged

    left = map(given, each_image(images))
    found = []
    while batch := list(islice(left, batch_size)):
        inputs, judged = zip(*batch, strict=True)
        found += case.predict(model, inputs, inputs, judged)
    return _one_or_several(found, several)


def _one_or_several(found: list[Prediction], several: bool) -> Prediction:
    if not found:
        raise ValueError("classify: there are no images; at least one is needed")
    return Prediction.stack(found) if several else found[0]


def _in_order(
    entry: MethodEntry, model: ClipLike, images: Images, prompts: ClassPrompts, settings: ViewSettings, batch_size: int
) -> list[Prediction]:
    """Run an online method over the images as a stream, from a new state."""
    online, of_batches = as_online("classify", entry), "images" in entry.needs
    wanted = replace(settings, n_views=1) if of_batches else settings
    views = (
        augment_views(image, model.image_spec, device=prompts.context.device, **vars(wanted))
        for image in each_image(images)
    )
    if not of_batches:
        found = list(stream(online, model, prompts, (encode_views(model, own) for own in views)))
    else:
        batches = iter(lambda: list(islice(views, batch_size)), [])
        found = [one for batch in stream(online, model, prompts, map(torch.cat, batches)) for one in batch]
    logging.getLogger(__name__).info(
        "classify: %s learned from the images in the order given (%d); results depend on it", entry.title, len(found)
    )
    return found
