"""DPE (Zhang et al., NeurIPS 2024): text and image prototypes that evolve together."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from tpt_lib.logits import unchecked_logits
from tpt_lib.methods.base import OnlineMethod, method
from tpt_lib.methods.cache import Cache, SummaryRecipe, check_recipe, empty_cache, insert, log2_classes, summarize
from tpt_lib.methods.online import begin, finish, initial_features
from tpt_lib.methods.presets import Presets
from tpt_lib.models.protocol import ClipLike
from tpt_lib.objectives import entropy
from tpt_lib.prediction import Prediction
from tpt_lib.prompts.class_prompts import ClassPrompts

__all__ = ["DpeState", "dpe"]

EPS = 1e-3  # of the authors' AdamW


@dataclass(frozen=True, eq=False)
class DpeState:
    """The text prototypes ``(K, E)``, how many images changed them, and the cache of confident images."""

    text: Float[Tensor, "k e"]
    count: Float[Tensor, ""]
    cache: Cache


@dataclass(frozen=True)
class DpeSettings:
    """The keywords of ``dpe``."""

    alpha: float
    beta: float
    lr: float
    align: float
    capacity: int
    threshold: float
    recipe: SummaryRecipe
    read: SummaryRecipe


def _preset(alpha: float, beta: float, lr: float, align: float, recipe: SummaryRecipe = "plain") -> dict[str, Any]:
    return {"alpha": alpha, "beta": beta, "lr": lr, "align": align, "recipe": recipe}


PRESETS: Presets = {
    "imagenet-a": {**_preset(6.0, 5.0, 3e-4, 2.5, "views"), "read": "views"},
    "imagenet-v2": _preset(3.0, 8.0, 5e-4, 0.5, "views"),
    "imagenet-r": _preset(3.0, 8.0, 6e-4, 0.0, "views"),
    "imagenet-sketch": _preset(7.0, 7.45, 6e-4, 0.2, "views"),
    "caltech101": _preset(15.0, 5.0, 6e-4, 0.2),
    "dtd": _preset(6.0, 3.0, 6e-4, 0.2),
    "eurosat": _preset(3.0, 8.0, 5e-5, 0.2),
    "aircraft": _preset(6.0, 2.0, 6e-4, 0.2),
    "food101": _preset(3.0, 1.0, 2e-4, 0.2),
    "flowers102": _preset(2.5, 5.0, 1e-4, 0.2),
    "pets": _preset(4.0, 7.0, 5e-5, 0.2),
    "cars": _preset(3.0, 7.0, 1e-4, 1.5),
    "sun397": _preset(6.0, 3.0, 2e-4, 0.2),
    "ucf101": _preset(9.0, 8.0, 4e-4, 0.2),
}


@method(name="dpe", title="DPE", paper="Zhang et al., NeurIPS 2024", published="DPE", presets=PRESETS, online=True)
def dpe(
    *,
    alpha: float = 6.0,
    beta: float = 5.0,
    lr: float = 6e-4,
    align: float = 0.5,
    capacity: int = 3,
    threshold: float = 0.1,
    recipe: SummaryRecipe = "views",
    read: SummaryRecipe = "plain",
) -> OnlineMethod[DpeState]:
    r"""Return DPE: text and image prototypes, both tuned to each image; the text prototypes carry over.

    With text prototypes :math:`\mathbf w_k`, and :math:`\mathbf u_k` the normalized mean of the images cached for class k:

    .. math::
        \mathbf H(\boldsymbol\ell + \alpha\, e^{-\beta(1 - \mathbf u_k^\top \mathbf x)})
        + a\, \mathrm{InfoNCE}_{0.01}(\mathbf u, \mathbf w)

    One AdamW step from 0 is :math:`-\eta\, g / (|g| + \epsilon)` exactly. The image is predicted with the moved prototypes. If
    that prediction is confident, the moved text prototypes enter their running mean.

    Convention: entropies are in nats and divided by :math:`\log_2 K`, as in the released code.

    Args:
        alpha: weight of the image prototypes (default 6).
        beta: sharpness of the image prototypes (default 5).
        lr: learning rate of the residuals (default 6e-4).
        align: weight :math:`a` of the alignment of both prototypes (default 0.5).
        capacity: images per class of the cache (default 3).
        threshold: entropy below which a prediction changes the text prototypes (default 0.1).
        recipe: ``"views"`` (default, for ImageNet and its variants) or ``"plain"`` (other sets); see ``summarize``.
        read: what is predicted with the moved prototypes: ``"plain"`` (default), the plain image; or ``"views"``, the mean of
            the views that are confident under them, as the authors do on ImageNet-A.

    Returns:
        The method.

    >>> prompts = tpt_lib.class_prompts(model, ["cat", "dog"])
    >>> found = dpe()
    >>> state, prediction = found.step(model, prompts, found.init(model, prompts), torch.eye(256)[:20])
    >>> prediction.logits.shape
    torch.Size([2])
    """
    if capacity < 1:
        raise ValueError(f"dpe: capacity must be at least 1, but got {capacity}")
    for each in (recipe, read):
        check_recipe("dpe", each)
    settings = DpeSettings(alpha, beta, lr, align, capacity, threshold, recipe, read)
    return OnlineMethod(partial(_init, settings), partial(_step, settings))


def _init(settings: DpeSettings, model: ClipLike, prompts: ClassPrompts) -> DpeState:
    text = initial_features("dpe", model, prompts)
    return DpeState(text, text.new_zeros(()), empty_cache(model, prompts, settings.capacity))


def _step(
    settings: DpeSettings, model: ClipLike, prompts: ClassPrompts, state: DpeState, features: Tensor
) -> tuple[DpeState, Prediction]:
    plain, views = begin("dpe", model, prompts, features)
    log2_k = log2_classes(prompts)
    seen = summarize(model, F.normalize(state.text, dim=-1), views, settings.recipe)
    cache = insert(state.cache, seen.label, seen.feature, seen.entropy)
    text, images = _moved(settings, model, state.text, cache, seen.feature)
    predicted = summarize(model, text, views, settings.read).feature
    logits = _fused(settings, model, text, images, cache.filled[:, 0], predicted)
    sure = entropy(logits) / log2_k < settings.threshold
    count = state.count + 1
    mean = (count * state.text + text) / (count + 1)
    state = DpeState(torch.where(sure, mean, state.text), torch.where(sure, count, state.count), cache)
    return state, finish("dpe", prompts, features, logits, unchecked_logits(model, views[:1], plain)[0])


def _moved(
    settings: DpeSettings, model: ClipLike, text: Tensor, cache: Cache, feature: Tensor
) -> tuple[Tensor, Tensor]:
    """Return text and image prototypes after one step of their residuals."""
    known = cache.filled[:, 0]
    means = cache.keys.sum(dim=1) / cache.filled.sum(dim=1, keepdim=True).clamp(min=1)
    with torch.inference_mode(False), torch.enable_grad():
        starts, known = [text, means], known.clone()
        residuals = [torch.zeros_like(one).requires_grad_() for one in starts]
        w, u = (F.normalize(one + residual, dim=-1) for one, residual in zip(starts, residuals, strict=True))
        loss = entropy(_fused(settings, model, w, u, known, feature.clone()))
        loss = loss + settings.align * _alignment(w, u, known)
        gradients = torch.autograd.grad(loss, residuals)
    steps = [-settings.lr * g / (g.abs() + EPS) for g in gradients]
    w, u = (F.normalize(one + step, dim=-1) for one, step in zip(starts, steps, strict=True))
    return w, u


def _fused(
    settings: DpeSettings, model: ClipLike, text: Tensor, images: Tensor, known: Tensor, feature: Tensor
) -> Tensor:
    """Return the logits of the text prototypes, corrected by the image prototypes of classes that have any."""
    logits = unchecked_logits(model, feature[None], text)[0]
    return logits + settings.alpha * (settings.beta * (images @ feature - 1)).exp() * known


def _alignment(text: Tensor, images: Tensor, known: Tensor) -> Tensor:
    """Return the InfoNCE loss of image prototypes and text prototypes, over the classes that have both."""
    similar = (images @ text.mT / 0.01).masked_fill(~known, torch.finfo(torch.float32).min)
    losses = -similar.log_softmax(dim=1).diagonal()
    return torch.where(known, losses, 0).sum() / known.sum()
