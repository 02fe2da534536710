"""R-TPT (Sheng et al., CVPR 2025): TPT by the entropy of each view, then a weighted mean over views."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Literal, get_args

import torch
from jaxtyping import Float
from torch import Tensor

from tpt_lib.logits import unchecked_logits
from tpt_lib.methods.base import method
from tpt_lib.methods.tpt import as_prediction
from tpt_lib.models.protocol import ClipLike
from tpt_lib.objectives import mean_entropy, select_confident
from tpt_lib.prediction import Prediction
from tpt_lib.prompts.class_prompts import ClassPrompts
from tpt_lib.tuning.tune import tune_prompt

__all__ = ["rtpt_predict"]

Diagonal = Literal["exact", "released"]


@method(name="rtpt", title="R-TPT", paper="Sheng et al., CVPR 2025", published="R-TPT")
def rtpt_predict(
    model: ClipLike,
    prompts: ClassPrompts,
    features: Float[Tensor, "*b n e"],
    *,
    fraction: float = 0.1,
    steps: int = 1,
    lr: float = 5e-3,
    neighbors: int = 20,
    temperature: float = 0.01,
    diagonal: Diagonal = "exact",
    on_step: Callable[[int, Tensor, Tensor], None] | None = None,
) -> Prediction:
    r"""Tune the prompts to the mean entropy of the views, then average the logits of all views by their reliability.

    .. math:: \min_{\mathbf p} \frac{1}{|S|} \sum_{n \in S} \mathbf H(p_n), \quad \sum_n w_n \ell_n, \quad
        w = \mathrm{softmax}(r / \tau)

    :math:`r_n` is the mean of the 20 largest cosines of view n to others; with 20 views or fewer, of all of them.

    Args:
        model: the model.
        prompts: where tuning starts; one template.
        features: normalized features ``(N, E)``, row 0 the plain image; ``(B, N, E)`` for several images.
        fraction: share of the views in the loss, the most confident (default 0.1).
        steps: number of steps (default 1).
        lr: learning rate (default 5e-3).
        neighbors: number of cosines in the mean (default 20).
        temperature: :math:`\tau` (default 0.01).
        diagonal: how the cosine of a view to itself is left out: ``"exact"`` (default), or ``"released"``, as the released code
            does: it leaves out cosines of 1 or more, so some diagonals stay and duplicates are left out.
        on_step: callback of each step, as for ``tune_prompt`` (default None).

    Returns:
        A prediction; for several images a batch of them.

    >>> prompts = tpt_lib.class_prompts(model, ["cat", "dog"])
    >>> bool(rtpt_predict(model, prompts, torch.eye(256)[:8]).tuned)
    True
    """
    if neighbors < 1 or not temperature > 0 or diagonal not in get_args(Diagonal):
        wanted = f"neighbors must be at least 1, temperature above 0 and diagonal one of {get_args(Diagonal)}"
        raise ValueError(f"rtpt_predict: {wanted}, but got {neighbors}, {temperature} and {diagonal!r}")
    select = partial(select_confident, fraction=fraction)
    how: Any = {"select": select, "steps": steps, "lr": lr, "on_step": on_step}
    tuned = tune_prompt(model, prompts, features, objective=mean_entropy, **how)
    weights = _reliability(features.detach().float(), neighbors, temperature, diagonal)
    logits = (weights[..., None, :] @ unchecked_logits(model, features.detach(), tuned.text_features))[..., 0, :]
    return as_prediction(model, prompts, features, tuned, logits)


def _reliability(views: Tensor, neighbors: int, temperature: float, diagonal: Diagonal) -> Tensor:
    """Return the weights of the views ``(…, N)``. A view without a neighbor has score -2, below any cosine."""
    cosines = views @ views.mT
    itself = torch.eye(views.shape[-2], device=views.device) > 0 if diagonal == "exact" else cosines >= 1
    nearest = cosines.masked_fill(itself, -torch.inf).topk(min(neighbors, max(1, views.shape[-2] - 1))).values
    return (nearest.mean(dim=-1).clamp(min=-2) / temperature).softmax(dim=-1)
