r"""Parts shared by the caches of TDA, BoostAdapter, DPE and DMN: a summary of an image's views, and a memory of past images.

Every function works without synchronizing with an accelerator: conditions are masks, not branches.
"""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass, replace
from typing import Literal, get_args

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from tpt_lib.logits import unchecked_logits
from tpt_lib.models.protocol import ClipLike
from tpt_lib.objectives import marginal_entropy, select_confident
from tpt_lib.prompts.class_prompts import ClassPrompts
from tpt_lib.text.initial import keep_features

SummaryRecipe = Literal["plain", "views"]


@dataclass(frozen=True, eq=False)
class Summary:
    """The summary of an image: a feature, logits, the entropy of its prediction in nats, probabilities, and a class."""

    feature: Float[Tensor, " e"]
    logits: Float[Tensor, " k"]
    entropy: Float[Tensor, ""]
    probs: Float[Tensor, " k"]
    label: Int[Tensor, ""]


def check_recipe(caller: str, recipe: SummaryRecipe) -> None:
    """Refuse an unknown recipe of the summary."""
    if recipe not in get_args(SummaryRecipe):
        raise ValueError(f"{caller}: recipe must be one of {get_args(SummaryRecipe)}, but got {recipe!r}")


def summarize(
    model: ClipLike, text: Float[Tensor, "k e"], features: Float[Tensor, "n e"], recipe: SummaryRecipe
) -> Summary:
    """Summarize the views of an image.

    Args:
        model: the model.
        text: text features.
        features: normalized features of the views, row 0 the plain image.
        recipe: ``"plain"`` takes the plain image. ``"views"`` takes means over the 10% most confident views; the mean feature
            is not normalized again.

    Returns:
        The summary.
    """
    if recipe == "plain":
        features = features[:1]
    logits = unchecked_logits(model, features, text)
    kept = select_confident(logits)
    features, logits = features.index_select(0, kept), logits.index_select(0, kept)
    mean = logits.mean(dim=0)
    return Summary(
        features.mean(dim=0), mean, marginal_entropy(logits), logits.softmax(dim=-1).mean(dim=0), mean.argmax()
    )


@dataclass(frozen=True, eq=False)
class Cache:
    """Past images under the class each was predicted to be, in order of their entropy.

    Attributes:
        keys: their features ``(K, capacity, E)``.
        entropy: the entropy of their predictions ``(K, capacity)``; infinite for empty places.
        masks: the classes that an image counts against ``(K, capacity, K)``, in a negative cache.
    """

    keys: Float[Tensor, "k c e"]
    entropy: Float[Tensor, "k c"]
    masks: Bool[Tensor, "k c k"] | None = None

    @property
    def filled(self) -> Bool[Tensor, "k c"]:
        return self.entropy.isfinite()


def empty_cache(model: ClipLike, prompts: ClassPrompts, capacity: int, *, masks: bool = False) -> Cache:
    """Return a cache without images."""
    classes, width, device = len(prompts.names), feature_width(model, prompts), prompts.context.device
    return Cache(
        torch.zeros(classes, capacity, width, device=device),
        torch.full((classes, capacity), torch.inf, device=device),
        torch.zeros(classes, capacity, classes, dtype=torch.bool, device=device) if masks else None,
    )


def feature_width(model: ClipLike, prompts: ClassPrompts) -> int:
    """Return the width E of the model's features."""
    if prompts.meta_net is not None:
        return prompts.meta_net.weight1.shape[1]
    return keep_features(model, prompts).shape[1]


def insert(
    cache: Cache,
    label: Int[Tensor, ""],
    feature: Float[Tensor, " e"],
    uncertainty: Float[Tensor, ""],
    *,
    mask: Bool[Tensor, " k"] | None = None,
    when: Bool[Tensor, ""] | None = None,
    order: Literal["entropy", "fifo"] = "entropy",
) -> Cache:
    """Return the cache with one more image; the last of a full class is dropped.

    Args:
        cache: the cache.
        label: the class it belongs to.
        feature: its feature.
        uncertainty: the entropy of its prediction.
        mask: the classes that it counts against, for a negative cache (default None).
        when: whether to insert it (default None: yes). Values that are not finite are never inserted.
        order: ``"entropy"`` (default) keeps the lowest; on a tie, the new image is dropped. ``"fifo"`` drops the oldest.

    Returns:
        A new cache. The given one is not changed.
    """
    row, capacity = label[None], cache.entropy.shape[1]
    ok = feature.isfinite().all() & uncertainty.isfinite()
    ok = ok if when is None else ok & when
    old = cache.entropy.index_select(0, row)[0]
    entropies = torch.cat([old, uncertainty[None]])
    places = torch.arange(capacity + 1, device=old.device)
    kept = entropies.sort(stable=True).indices[:-1] if order == "entropy" else places.roll(1)[:-1]
    kept = torch.where(ok, kept, places[:-1])

    def put(values: Tensor, new: Tensor) -> Tensor:
        rows = torch.cat([values.index_select(0, row)[0], new[None]])
        return values.index_copy(0, row, rows.index_select(0, kept)[None])

    return replace(
        cache,
        keys=put(cache.keys, feature),
        entropy=put(cache.entropy, uncertainty),
        masks=None if mask is None else put(masks_of(cache), mask),
    )


def affinity(cache: Cache, feature: Float[Tensor, " e"], beta: float) -> Float[Tensor, "k c"]:
    r"""Return :math:`e^{-\beta(1 - \mathbf x_i^\top \mathbf x)}` for each cached image, 0 for empty places."""
    return (beta * (cache.keys @ feature - 1)).exp() * cache.filled


def masks_of(cache: Cache) -> Bool[Tensor, "k c k"]:
    """Return the masks of a negative cache."""
    assert cache.masks is not None, "only a negative cache has masks"
    return cache.masks


def log2_classes(prompts: ClassPrompts) -> float:
    r"""Return :math:`\log_2 K`, by which the caches divide entropies in nats, as their authors do."""
    return max(math.log2(len(prompts.names)), sys.float_info.min)
