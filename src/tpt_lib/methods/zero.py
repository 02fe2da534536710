"""ZERO (Farina et al., NeurIPS 2024): the vote of the confident views, which is TPT's marginal at temperature 0."""

from __future__ import annotations

import math

import torch
from jaxtyping import Float
from torch import Tensor

from tpt_lib.logits import unchecked_logits
from tpt_lib.methods.base import check_features, method
from tpt_lib.methods.view_average import plain, selected_rows
from tpt_lib.models.protocol import ClipLike
from tpt_lib.objectives import log_marginal, select_confident
from tpt_lib.prediction import Prediction
from tpt_lib.prompts.class_prompts import ClassPrompts
from tpt_lib.text.initial import start_features

__all__ = ["zero_predict"]


@method(name="zero", title="ZERO", paper="Farina et al., NeurIPS 2024", published="ZERO", probabilities=False)
def zero_predict(
    model: ClipLike,
    prompts: ClassPrompts,
    features: Float[Tensor, "*b n e"],
    *,
    fraction: float = 0.3,
    temperature: float = 0.0,
) -> Prediction:
    r"""Let the confident views vote: marginalize over them at temperature 0.

    .. math:: \sum_{n \in S} \lim_{\tau \to 0} \mathrm{softmax}(\mathrm{sim}(\mathbf t_k, \mathbf v_n) / \tau)

    Convention: a tie goes to the tied class that the most confident other view votes for, else to the likeliest on average.

    Args:
        model: the model.
        prompts: hand-crafted or learned; the authors also use several templates.
        features: normalized features ``(N, E)``, row 0 the plain image; ``(B, N, E)`` for several images.
        fraction: share of the views that vote, the most confident (default 0.3).
        temperature: 0 (default) is the paper's hard vote; the authors' runs in half precision had ``2**-10``, a softer one.

    Returns:
        A prediction whose probabilities are shares of votes; for several images a batch of them.

    >>> prompts = tpt_lib.class_prompts(model, ["cat", "dog"])
    >>> zero_predict(model, prompts, torch.eye(256)[:20]).selected.shape
    torch.Size([6])
    """
    check_features("zero_predict", features)
    if not 0 < fraction <= 1 or not 0 <= temperature < math.inf:
        raise ValueError(
            "zero_predict: fraction must be above 0 and at most 1, and temperature finite and at least 0, but got "
            f"{fraction} and {temperature}"
        )
    logits = unchecked_logits(model, features, start_features(model, prompts, features))
    order = select_confident(logits, fraction=1.0)
    kept = max(1, int(fraction * order.shape[-1]))
    voters, others = selected_rows(logits, order[..., :kept]), selected_rows(logits, order[..., kept:])
    ballots = (voters / (model.logit_scale * temperature)).softmax(dim=-1) if temperature > 0 else _ballots(voters)
    votes = ballots.sum(dim=-2)
    likely = log_marginal(voters)
    votes = votes + _tie_break(votes, likely, others)
    found = torch.logaddexp((votes / votes.sum(-1, True)).log(), likely + math.log(1e-6))  # orders the voteless classes
    return Prediction(prompts.names, found, plain(prompts, logits), selected=order[..., :kept])


def _ballots(logits: Tensor) -> Tensor:
    """Return one vote per row ``(…, K)``, which is split only where the best classes have the same logit."""
    best = (logits == logits.amax(dim=-1, keepdim=True)).float()
    return best / best.sum(dim=-1, keepdim=True)


def _tie_break(votes: Tensor, likely: Tensor, others: Tensor) -> Tensor:
    """Return a vote for a tied class: that of the first of the others ``(…, R, K)`` for one of them, else the likeliest."""
    tied = votes == votes.amax(dim=-1, keepdim=True)
    last = _ballots(likely.masked_fill(~tied, -math.inf))[..., None, :]
    valid = torch.cat([_ballots(others) * tied[..., None, :], last], dim=-2)
    first = valid.any(dim=-1, keepdim=True).int().argmax(dim=-2, keepdim=True)
    return _ballots(valid.take_along_dim(first, dim=-2)[..., 0, :]) * (tied.sum(dim=-1, keepdim=True) > 1)
