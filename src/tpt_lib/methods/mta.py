"""MTA (Zanella and Ben Ayed, CVPR 2024): the mode of the views' features, without tuning."""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor

from tpt_lib.logits import unchecked_logits
from tpt_lib.methods.base import check_features, method
from tpt_lib.methods.mean_shift import mean_shift
from tpt_lib.methods.view_average import plain
from tpt_lib.models.protocol import ClipLike
from tpt_lib.prediction import Prediction
from tpt_lib.prompts.class_prompts import ClassPrompts
from tpt_lib.text.initial import start_features

__all__ = ["mta_predict"]


@method(name="mta", title="MTA", paper="Zanella and Ben Ayed, CVPR 2024", published="MTA")
def mta_predict(
    model: ClipLike,
    prompts: ClassPrompts,
    features: Float[Tensor, "*b n e"],
    *,
    lambda_q: float = 4.0,
    lambda_y: float = 0.2,
) -> Prediction:
    r"""Classify the mode of the views, found by mean shift with learned weights of the views.

    .. math:: \max_{\mathbf m, \mathbf y} \sum_n y_n K_n(\mathbf m) + \frac{\lambda_q}{2} \sum_{n,j} y_n y_j\, p_n \cdot p_j
        + \lambda_y \mathbf H(\mathbf y), \quad K_n(\mathbf m) = e^{-\|\mathbf v_n - \mathbf m\|^2 / 2 h_n^2}

    :math:`2 h_n^2` is the mean squared distance to the nearest 30% of the other views, at least one and at least 2e-8.

    Args:
        model: the model.
        prompts: hand-crafted or learned; the authors also use several templates.
        features: normalized features ``(N, E)``, row 0 the plain image; ``(B, N, E)`` for several images.
        lambda_q: weight of agreement between the views' predictions (default 4).
        lambda_y: weight of the entropy, which keeps the views' weights away from 0 (default 0.2).

    Returns:
        A prediction; for several images a batch of them.

    >>> prompts = tpt_lib.class_prompts(model, ["cat", "dog"])
    >>> mta_predict(model, prompts, torch.eye(256)[:20]).probs.shape
    torch.Size([2])
    """
    check_features("mta_predict", features)
    if lambda_q < 0 or lambda_y <= 0:
        raise ValueError(
            f"mta_predict: lambda_q must be 0 or more and lambda_y above 0, but got {lambda_q} and {lambda_y}"
        )
    text, views = start_features(model, prompts, features), features.detach().float()
    logits = unchecked_logits(model, views, text)
    mode = mean_shift(views, logits.softmax(dim=-1), lambda_q, lambda_y)
    return Prediction(prompts.names, unchecked_logits(model, mode, text)[..., 0, :], plain(prompts, logits))
