"""VTE (2024): the mean feature of the confident views, without tuning."""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor

from tpt_lib.logits import unchecked_logits
from tpt_lib.methods.base import check_features, method
from tpt_lib.methods.view_average import plain, selected_rows
from tpt_lib.models.protocol import ClipLike
from tpt_lib.objectives import select_confident
from tpt_lib.prediction import Prediction
from tpt_lib.prompts.class_prompts import ClassPrompts
from tpt_lib.text.initial import start_features

__all__ = ["vte_predict"]


@method(name="vte", title="VTE", paper="arXiv 2405.14977", published="VTE")
def vte_predict(
    model: ClipLike, prompts: ClassPrompts, features: Float[Tensor, "*b n e"], *, fraction: float = 0.1
) -> Prediction:
    r"""Classify the mean feature of the confident views.

    .. math:: \tau\, \mathbf t_k \cdot \frac{1}{|S|} \sum_{n \in S} \mathbf v_n

    Convention: the mean is not normalized. The label is that of the normalized mean, the confidence is lower.

    Args:
        model: the model.
        prompts: hand-crafted or learned; the authors use several templates.
        features: normalized features ``(N, E)``, row 0 the plain image; ``(B, N, E)`` for several images.
        fraction: share of the views that is averaged, the most confident (default 0.1).

    Returns:
        A prediction; for several images a batch of them.

    >>> prompts = tpt_lib.class_prompts(model, ["cat", "dog"])
    >>> vte_predict(model, prompts, torch.eye(256)[:20]).selected.shape
    torch.Size([2])
    """
    check_features("vte_predict", features)
    text = start_features(model, prompts, features)
    logits = unchecked_logits(model, features, text)
    selected = select_confident(logits, fraction=fraction)
    mean = selected_rows(features.float(), selected).mean(dim=-2, keepdim=True)
    return Prediction(
        prompts.names, unchecked_logits(model, mean, text)[..., 0, :], plain(prompts, logits), selected=selected
    )
