"""TDA (Karmanov et al., CVPR 2024): a cache of confident predictions, and one of classes that uncertain images are not."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor

from tpt_lib.logits import unchecked_logits
from tpt_lib.methods.base import OnlineMethod, method
from tpt_lib.methods.cache import (
    Cache,
    Summary,
    SummaryRecipe,
    affinity,
    check_recipe,
    empty_cache,
    insert,
    log2_classes,
    masks_of,
    summarize,
)
from tpt_lib.methods.online import begin, finish
from tpt_lib.methods.presets import IMAGENET_VARIANTS
from tpt_lib.models.protocol import ClipLike
from tpt_lib.objectives import entropy
from tpt_lib.prediction import Prediction
from tpt_lib.prompts.class_prompts import ClassPrompts

__all__ = ["TdaState", "tda"]


@dataclass(frozen=True, eq=False)
class TdaState:
    """The positive and the negative cache."""

    positive: Cache
    negative: Cache


@dataclass(frozen=True)
class TdaSettings:
    """The keywords of ``tda``."""

    alpha: float
    beta: float
    capacity: int
    negative_alpha: float
    negative_beta: float
    negative_capacity: int
    negative_order: Literal["entropy", "fifo"]
    entropy_range: tuple[float, float]
    mask_range: tuple[float, float]
    recipe: SummaryRecipe
    boost: int | None = None  # places for the image's own views in BoostAdapter
    boosted: int = 0  # number of those views

    @property
    def caller(self) -> str:
        """The method that errors name."""
        return "tda" if self.boost is None else "boostadapter"


SCORES = {
    "imagenet-a": (2.0, 5.0), "imagenet-v2": (1.0, 8.0), "imagenet-r": (1.0, 8.0), "imagenet-sketch": (2.363, 7.45),
    "caltech101": (5.0, 5.0), "dtd": (2.0, 3.0), "eurosat": (4.0, 8.0), "aircraft": (2.0, 2.0), "food101": (1.0, 1.0),
    "flowers102": (1.0, 5.0), "pets": (2.0, 7.0), "cars": (1.0, 7.0), "sun397": (2.0, 3.0), "ucf101": (3.0, 8.0),
}  # fmt: skip
PRESETS: dict[str, dict[str, Any]] = {
    name: {"alpha": alpha, "beta": beta, **({"recipe": "views"} if name in IMAGENET_VARIANTS else {})}
    for name, (alpha, beta) in SCORES.items()
}


@method(name="tda", title="TDA", paper="Karmanov et al., CVPR 2024", published="TDA", presets=PRESETS, online=True)
def tda(
    *,
    alpha: float = 2.0,
    beta: float = 5.0,
    capacity: int = 3,
    negative_alpha: float = 0.117,
    negative_beta: float = 1.0,
    negative_capacity: int = 2,
    entropy_range: tuple[float, float] = (0.2, 0.5),
    mask_range: tuple[float, float] = (0.03, 1.0),
    recipe: SummaryRecipe = "plain",
) -> OnlineMethod[TdaState]:
    r"""Return TDA: logits corrected by past images that are similar to this one.

    .. math::
        \boldsymbol\ell + \alpha \sum_{i \in \mathrm{pos}} e^{-\beta(1 - \mathbf x_i^\top \mathbf x)} \mathbf 1_{c_i}
        - \alpha_- \sum_{i \in \mathrm{neg}} e^{-\beta_-(1 - \mathbf x_i^\top \mathbf x)} \mathbf m_i

    An image enters the positive cache under its predicted class :math:`c` if its entropy is among the lowest there. It enters
    the negative cache if its entropy is neither low nor high, with the mask :math:`\mathbf m` of the classes whose probability
    is in ``mask_range``. Both happen before it is predicted.

    Convention: entropies are in nats and divided by :math:`\log_2 K`, as in the released code, so they are at most 0.693.

    Args:
        alpha: weight of the positive cache (default 2).
        beta: sharpness of the positive cache (default 5).
        capacity: images per class of the positive cache (default 3).
        negative_alpha: weight of the negative cache (default 0.117).
        negative_beta: sharpness of the negative cache (default 1).
        negative_capacity: images per class of the negative cache (default 2).
        entropy_range: entropies, exclusive, with which an image enters the negative cache (default 0.2 to 0.5).
        mask_range: probabilities, exclusive, of the classes in the mask (default 0.03 to 1).
        recipe: ``"plain"`` (default) or ``"views"``; see ``summarize``. The authors use views on ImageNet-A, -R, -V2 and
            -Sketch.

    Returns:
        The method.

    >>> prompts = tpt_lib.class_prompts(model, ["cat", "dog"])
    >>> found = tda()
    >>> state, prediction = found.step(model, prompts, found.init(model, prompts), torch.eye(256)[:3])
    >>> state.positive.filled.sum()
    tensor(1)
    """
    settings = TdaSettings(
        alpha,
        beta,
        capacity,
        negative_alpha,
        negative_beta,
        negative_capacity,
        "entropy",
        entropy_range,
        mask_range,
        recipe,
    )
    return cached_method(settings)


def cached_method(settings: TdaSettings) -> OnlineMethod[TdaState]:
    """Return TDA or BoostAdapter with these settings, checked."""
    if settings.capacity < 1 or settings.negative_capacity < 1:
        raise ValueError(
            f"{settings.caller}: capacities must be at least 1, but got {settings.capacity} and {settings.negative_capacity}"
        )
    check_recipe(settings.caller, settings.recipe)
    return OnlineMethod(partial(_init, settings), partial(_step, settings))


def _init(settings: TdaSettings, model: ClipLike, prompts: ClassPrompts) -> TdaState:
    return TdaState(
        empty_cache(model, prompts, settings.capacity),
        empty_cache(model, prompts, settings.negative_capacity, masks=True),
    )


def _step(
    settings: TdaSettings, model: ClipLike, prompts: ClassPrompts, state: TdaState, features: Tensor
) -> tuple[TdaState, Prediction]:
    text, views = begin(settings.caller, model, prompts, features)
    seen = summarize(model, text, views, settings.recipe)
    state = _remember(settings, state, seen, log2_classes(prompts))
    positive = affinity(state.positive, seen.feature, settings.beta)
    if settings.boost is not None and len(views) > 1:
        positive = _boosted(settings, model, text, state.positive, seen.feature, views)
    negative = affinity(state.negative, seen.feature, settings.negative_beta)
    against = negative.flatten() @ masks_of(state.negative).flatten(0, 1).float()
    logits = seen.logits + settings.alpha * positive.sum(dim=1) - settings.negative_alpha * against
    return state, finish(settings.caller, prompts, features, logits, unchecked_logits(model, views[:1], text)[0])


def _remember(settings: TdaSettings, state: TdaState, seen: Summary, log2_k: float) -> TdaState:
    """Return the caches with one more image."""
    (low, high), (least, most) = settings.entropy_range, settings.mask_range
    share = seen.entropy / log2_k
    uncertain, possible = (low < share) & (share < high), (least < seen.probs) & (seen.probs < most)
    return TdaState(
        insert(state.positive, seen.label, seen.feature, seen.entropy),
        insert(
            state.negative, seen.label, seen.feature, seen.entropy,
            mask=possible, when=uncertain, order=settings.negative_order,
        ),
    )  # fmt: skip


def _boosted(
    settings: TdaSettings, model: ClipLike, text: Tensor, cache: Cache, feature: Tensor, features: Tensor
) -> Tensor:
    """Return affinities ``(K, capacity + boost)`` to the cache and to the image's own confident views, each under its class."""
    logits = unchecked_logits(model, features, text)
    kept = entropy(logits).sort(stable=True).indices[: settings.boosted]
    views, logits = features.index_select(0, kept), logits.index_select(0, kept)
    own = logits.argmax(dim=1) == torch.arange(len(text), device=text.device)[:, None]
    entropies = torch.cat([cache.entropy, entropy(logits).masked_fill(~own, torch.inf)], dim=1)
    near = torch.cat([cache.keys @ feature, (views @ feature).expand(len(text), -1)], dim=1)
    entropies, order = entropies.sort(dim=1, stable=True)
    found = (settings.beta * (near.gather(1, order) - 1)).exp() * entropies.isfinite()
    return found[:, : settings.capacity + (settings.boost or 0)]
