"""OnZeta (Qian and Hu, ECCV 2024): online label learning with balanced classes, and online proxies in image space."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from tpt_lib.logits import unchecked_logits
from tpt_lib.methods.base import OnlineMethod, method
from tpt_lib.methods.online import begin, finish, initial_features
from tpt_lib.models.protocol import ClipLike
from tpt_lib.prediction import Prediction
from tpt_lib.prompts.class_prompts import ClassPrompts

__all__ = ["OnzetaState", "onzeta"]


@dataclass(frozen=True, eq=False)
class OnzetaState:
    """The dual variables of the classes ``(K,)``, the proxies ``(K, E)``, and the number of images seen."""

    dual: Float[Tensor, " k"]
    proxies: Float[Tensor, "k e"]
    seen: Float[Tensor, ""]


@dataclass(frozen=True)
class OnzetaSettings:
    """The keywords of ``onzeta``."""

    expected: int
    alpha: float
    beta: float
    dual_lr: float
    proxy_lr: float
    temperature: float


@method(name="onzeta", title="OnZeta", paper="Qian and Hu, ECCV 2024", online=True)
def onzeta(
    *,
    expected: int | None = None,
    alpha: float = 1.0,
    beta: float = 0.8,
    dual_lr: float = 20.0,
    proxy_lr: float = 0.5,
    temperature: float = 0.04,
) -> OnlineMethod[OnzetaState]:
    r"""Return OnZeta: zero-shot probabilities balanced over classes, mixed with those of proxies that follow the images.

    For image :math:`i` of :math:`n`, with zero-shot probabilities :math:`\mathbf p`:

    .. math::
        \mathbf q \propto \mathbf p\, e^{\boldsymbol\rho}, \quad
        \boldsymbol\rho \leftarrow
        \max(0, \boldsymbol\rho - \frac{\eta_\rho}{\sqrt i}(\mathbf q - \frac\alpha K)), \quad
        \mathbf g = \mathrm{softmax}(W \mathbf v / \tau), \quad
        b\,\mathbf g + (1 - b)\,\mathbf q, \; b = \beta \sqrt{i / n}

    Then :math:`W` takes a gradient step of its cross-entropy with :math:`\mathbf q` and is normalized.

    Convention: :math:`\alpha = 1` assumes that all classes are equally frequent; 0 assumes nothing.

    Args:
        expected: number of images in the stream; required. Further images count as the last.
        alpha: least share of each class, relative to equal shares (default 1).
        beta: weight of the proxies at the end of the stream (default 0.8; later work uses 0.4 on fine-grained sets).
        dual_lr: step size of the dual variables (default 20).
        proxy_lr: step size of the proxies (default 0.5).
        temperature: temperature of the proxies (default 0.04).

    Returns:
        The method. Its outputs are logarithms of probabilities.

    >>> prompts = tpt_lib.class_prompts(model, ["cat", "dog"])
    >>> found = onzeta(expected=100)
    >>> state, prediction = found.step(model, prompts, found.init(model, prompts), torch.eye(256)[:1])
    >>> int(state.seen)
    1
    """
    if expected is None or isinstance(expected, bool) or expected < 1:
        raise ValueError(
            f"onzeta: expected must be the number of images in the stream (1 or more), on which its weights depend, but got "
            f"{expected!r}"
        )
    settings = OnzetaSettings(expected, alpha, beta, dual_lr, proxy_lr, temperature)
    return OnlineMethod(_init, partial(_step, settings))


def _init(model: ClipLike, prompts: ClassPrompts) -> OnzetaState:
    text = initial_features("onzeta", model, prompts)
    return OnzetaState(text.new_zeros(len(text)), text, text.new_zeros(()))


def _step(
    settings: OnzetaSettings, model: ClipLike, prompts: ClassPrompts, state: OnzetaState, features: Tensor
) -> tuple[OnzetaState, Prediction]:
    text, views = begin("onzeta", model, prompts, features)
    image, logits = views[0], unchecked_logits(model, views[:1], text)[0]
    count = state.seen + 1
    label = (logits + state.dual).softmax(dim=0)
    proxy = (state.proxies @ image / settings.temperature).softmax(dim=0)
    weight = settings.beta * (count / settings.expected).sqrt().clamp(max=1)
    mixed = weight * proxy + (1 - weight) * label
    dual = state.dual - settings.dual_lr / count.sqrt() * (label - settings.alpha / len(text))
    step = settings.proxy_lr / (settings.temperature * count.sqrt())
    proxies = F.normalize(state.proxies - step * torch.outer(proxy - label, image), dim=-1)
    tiny = math.log(torch.finfo(torch.float32).tiny)
    found = finish("onzeta", prompts, features, mixed.log().clamp(min=tiny), logits)
    return OnzetaState(dual.clamp(min=0), proxies, count), found
