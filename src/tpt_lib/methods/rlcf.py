"""RLCF (Zhao et al., ICLR 2024): tune the prompt to a second CLIP's scores of the likeliest classes."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import torch
from jaxtyping import Float
from torch import Tensor

from tpt_lib.logits import unchecked_logits
from tpt_lib.methods.base import Needs, check_features, method
from tpt_lib.methods.presets import FINE_GRAINED, on_each
from tpt_lib.methods.reward import clip_scores, policy_loss
from tpt_lib.methods.tpt import tpt_predict
from tpt_lib.models.protocol import ClipLike
from tpt_lib.objectives import select_confident
from tpt_lib.prediction import Prediction
from tpt_lib.prompts.class_prompts import ClassPrompts
from tpt_lib.text.initial import start_features

__all__ = ["rlcf_predict"]

NEEDS: tuple[Needs, ...] = ("features", "reward")
PRESETS = on_each(FINE_GRAINED, steps=5)


@method(name="rlcf", title="RLCF", paper="Zhao et al., ICLR 2024", needs=NEEDS, published="RLCF", presets=PRESETS)
def rlcf_predict(
    model: ClipLike,
    prompts: ClassPrompts,
    features: Float[Tensor, "*b n e"],
    *,
    reward: Float[Tensor, "*b n k"] | Sequence[Float[Tensor, "*b n k"]],
    weights: Sequence[int | float] | None = None,
    sampled: int = 3,
    fraction: float = 0.1,
    steps: int = 3,
    lr: float = 7e-3,
) -> Prediction:
    r"""Tune the prompts to the classes that another CLIP finds in the views, then classify the plain image.

    .. math:: \min_{\mathbf p} -\frac{1}{3|S|} \sum_{n \in S} \sum_{k \in C_n} (r_{nk} - \bar r_n) \log p_{nk}, \quad
        r = \max(0, 2.5\, \mathrm{reward})

    :math:`C_n` are the 3 likeliest classes of view n under the current prompt, :math:`\bar r_n` is the mean of their rewards.

    Args:
        model: the model.
        prompts: where tuning starts; one template.
        features: normalized features ``(N, E)``, row 0 the plain image; ``(B, N, E)`` for several images.
        reward: cosines of the same views to the same classes under another CLIP, ``(N, K)`` or ``(B, N, K)``; or a list of
            them. ``classify``, ``compare`` and ``evaluate`` compute them from a pair (model, prompts).
        weights: weight of each reward in a list (default: equal; the authors' are 10, 5 and 3).
        sampled: number of likeliest classes (default 3).
        fraction: share of the views in the loss, the most confident (default 0.1).
        steps: number of steps (default 3; the authors' is 5 on fine-grained sets).
        lr: learning rate of AdamW with weight decay 5e-4 (default 7e-3).

    Returns:
        A prediction; for several images a batch of them.

    >>> prompts = tpt_lib.class_prompts(model, ["cat", "dog"])
    >>> bool(rlcf_predict(model, prompts, torch.eye(256)[:20], reward=torch.rand(20, 2)).tuned)
    True
    """
    check_features("rlcf_predict", features)
    scores = clip_scores("rlcf_predict", reward, weights, (*features.shape[:-1], len(prompts.names)))
    logits = unchecked_logits(model, features, start_features(model, prompts, features))
    selected = select_confident(logits, fraction=fraction)
    optimizer = partial(torch.optim.AdamW, weight_decay=5e-4)
    tune = partial(tpt_predict, model, prompts, steps=steps, lr=lr, optimizer=optimizer)

    def predict(views: Tensor, kept: Tensor, scores: Tensor) -> Prediction:
        return tune(views, select=lambda _: kept, objective=partial(policy_loss, scores=scores[kept], sampled=sampled))

    if features.ndim == 2:
        return predict(features, selected, scores)
    return Prediction.stack([predict(*one) for one in zip(features, selected, scores, strict=True)])
