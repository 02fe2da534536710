"""Take a majority vote over views, without tuning."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from tpt_lib.methods.base import check_features, method
from tpt_lib.methods.view_average import plain, selected_rows, trusted_logits
from tpt_lib.models.protocol import ClipLike
from tpt_lib.objectives import log_marginal
from tpt_lib.prediction import Prediction
from tpt_lib.prompts.class_prompts import ClassPrompts

__all__ = ["vote_predict"]


@method(
    name="view_vote",
    title="majority vote",
    paper="Shu et al., NeurIPS 2022",
    published="Majority vote",
    probabilities=False,
)
def vote_predict(
    model: ClipLike, prompts: ClassPrompts, features: Float[Tensor, "*b n e"], *, fraction: float | None = None
) -> Prediction:
    r"""Let the views vote (appendix A.2).

    The probability of a class is :math:`(v + \tilde p) / (N + 1)` with its votes :math:`v` and its averaged probability
    :math:`\tilde p`. A tie therefore goes to the class of higher averaged probability, and then to the lower index.

    Args:
        model: the model.
        prompts: hand-crafted or learned.
        features: normalized features ``(N, E)``, row 0 the plain image; ``(B, N, E)`` for several images.
        fraction: share of the views that vote, the most confident, as ``select_confident`` picks them (default None: all).

    Returns:
        A prediction; for several images a batch of them.

    >>> prompts = tpt_lib.class_prompts(model, ["cat", "dog"])
    >>> vote_predict(model, prompts, torch.eye(256)[:20]).probs.shape
    torch.Size([2])
    """
    check_features("vote_predict", features)
    logits, selected = trusted_logits(model, prompts, features, fraction)
    voters = selected_rows(logits, selected)
    votes = F.one_hot(voters.argmax(dim=-1), voters.shape[-1]).sum(dim=-2)
    shares = torch.logaddexp(votes.log(), log_marginal(voters)) - math.log(voters.shape[-2] + 1)
    return Prediction(prompts.names, shares, plain(prompts, logits), selected=selected)
