"""O-TPT (Sharifdeen et al., CVPR 2025): TPT that keeps the text features orthogonal, for calibrated predictions."""

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

__all__ = ["otpt_predict", "text_overlap"]


@method(
    name="otpt",
    title="O-TPT",
    paper="Sharifdeen et al., CVPR 2025",
    published="O-TPT",
    presets=on_each(IMAGENET_VARIANTS, weight=2.0),
)
def otpt_predict(
    model: ClipLike,
    prompts: ClassPrompts,
    features: Float[Tensor, "*b n e"],
    *,
    weight: float = 18.0,
    fraction: float = 0.1,
    steps: int = 1,
    lr: float = 5e-3,
    on_step: Callable[[int, Tensor, Tensor], None] | None = None,
) -> Prediction:
    r"""Tune the prompts as TPT does, with the overlap of the text features as a penalty.

    .. math:: \min_{\mathbf p} \mathbf H(\tilde p{}_{\mathbf p}) + \lambda R(\mathbf t), \quad
        R = \frac 1K \sum_k \| \mathbf G_k \|_2 - 1, \quad \mathbf G_{kj} = \mathbf t_k \cdot \mathbf t_j

    Args:
        model: the model.
        prompts: where tuning starts; one template.
        features: normalized features ``(N, E)``, row 0 the plain image; ``(B, N, E)`` for several images.
        weight: :math:`\lambda` (default 18; the authors' is 2 on the variants of ImageNet).
        fraction: share of the views in the loss, the most confident (default 0.1).
        steps: number of steps (default 1).
        lr: learning rate (default 5e-3).
        on_step: callback of each step, as for ``tune_prompt`` (default None).

    Returns:
        A prediction; for several images a batch of them.

    >>> prompts = tpt_lib.class_prompts(model, ["cat", "dog"])
    >>> bool(otpt_predict(model, prompts, torch.eye(256)[:20]).tuned)
    True
    """
    how: Any = {"steps": steps, "lr": lr, "on_step": on_step}
    select = partial(select_confident, fraction=fraction)
    return tpt_predict(model, prompts, features, regularizer=lambda t: weight * text_overlap(t), select=select, **how)


def text_overlap(text_features: Float[Tensor, "*b k e"]) -> Float[Tensor, "*b"]:
    """Return the mean norm of the rows of the Gram matrix, minus 1: 0 where the text features are orthogonal.

    The released code reflects each row onto its axis and compares it with the identity, which takes K³ memory. A reflection
    keeps the norm, so this is the same number, and the same gradient, in K² memory.

    Args:
        text_features: normalized text features ``(…, K, E)``.

    Returns:
        The overlap ``(…)``; a scalar for text features ``(K, E)``.

    >>> text_overlap(torch.eye(2)), text_overlap(torch.ones(2, 1))
    (tensor(0.), tensor(0.4142))
    """
    return (text_features @ text_features.mT).norm(dim=-1).mean(dim=-1) - 1
