"""C-TPT (Yoon et al., ICLR 2024): TPT that keeps the text features spread out, for calibrated predictions."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from jaxtyping import Float
from torch import Tensor

from tpt_lib.methods.base import method
from tpt_lib.methods.presets import IMAGENET_VARIANTS, on_each
from tpt_lib.methods.tpt import tpt_predict
from tpt_lib.models.protocol import ClipLike
from tpt_lib.objectives import select_confident
from tpt_lib.prediction import Prediction
from tpt_lib.prompts.class_prompts import ClassPrompts

__all__ = ["ctpt_predict", "text_dispersion"]


@method(
    name="ctpt",
    title="C-TPT",
    paper="Yoon et al., ICLR 2024",
    published="C-TPT",
    presets=on_each(IMAGENET_VARIANTS, weight=20.0),
)
def ctpt_predict(
    model: ClipLike,
    prompts: ClassPrompts,
    features: Float[Tensor, "*b n e"],
    *,
    weight: float = 50.0,
    fraction: float = 0.1,
    steps: int = 1,
    lr: float = 5e-3,
    on_step: Callable[[int, Tensor, Tensor], None] | None = None,
) -> Prediction:
    r"""Tune the prompts as TPT does, with the dispersion of the text features as a reward.

    .. math:: \min_{\mathbf p} \mathbf H(\tilde p{}_{\mathbf p}) - \lambda D(\mathbf t), \quad
        D = \frac 1K \sum_k \| \mathbf t_k - \frac 1K \sum_j \mathbf t_j \|_2

    Args:
        model: the model.
        prompts: where tuning starts; one template.
        features: normalized features ``(N, E)``, row 0 the plain image; ``(B, N, E)`` for several images.
        weight: :math:`\lambda` (default 50; the authors' is 20 on the variants of ImageNet).
        fraction: share of the views in the loss, the most confident (default 0.1).
        steps: number of steps (default 1).
        lr: learning rate (default 5e-3).
        on_step: callback of each step, as for ``tune_prompt`` (default None).

    Returns:
        A prediction; for several images a batch of them.

    >>> prompts = tpt_lib.class_prompts(model, ["cat", "dog"])
    >>> bool(ctpt_predict(model, prompts, torch.eye(256)[:20]).tuned)
    True
    """
    how: Any = {"steps": steps, "lr": lr, "on_step": on_step}
    select = partial(select_confident, fraction=fraction)
    return tpt_predict(
        model, prompts, features, regularizer=lambda t: -weight * text_dispersion(t), select=select, **how
    )


def text_dispersion(text_features: Float[Tensor, "*b k e"]) -> Float[Tensor, "*b"]:
    """Return the mean distance of the text features from their mean, which is not normalized.

    Args:
        text_features: normalized text features ``(…, K, E)``.

    Returns:
        The mean distance ``(…)``; a scalar for text features ``(K, E)``.

    >>> text_dispersion(torch.eye(2))  # sqrt(1/2)
    tensor(0.7071)
    """
    return (text_features - text_features.mean(dim=-2, keepdim=True)).norm(dim=-1).mean(dim=-1)
