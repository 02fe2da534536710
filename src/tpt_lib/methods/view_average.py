"""Average the predictions of views, without tuning."""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor

from tpt_lib.logits import unchecked_logits
from tpt_lib.methods.base import check_features, method
from tpt_lib.models.protocol import ClipLike
from tpt_lib.objectives import log_marginal, select_confident
from tpt_lib.prediction import Prediction
from tpt_lib.prompts.class_prompts import ClassPrompts
from tpt_lib.text.initial import start_features

__all__ = ["average_predict"]


@method(
    name="view_average", title="averaged prediction", paper="Shu et al., NeurIPS 2022", published="Averaged prediction"
)
def average_predict(
    model: ClipLike, prompts: ClassPrompts, features: Float[Tensor, "*b n e"], *, fraction: float | None = None
) -> Prediction:
    r"""Average the predictions of the views, :math:`\frac 1N \sum_n p(y \mid \mathcal A_n(X))` (appendix A.2).

    Args:
        model: the model.
        prompts: hand-crafted or learned.
        features: normalized features ``(N, E)``, row 0 the plain image; ``(B, N, E)`` for several images.
        fraction: share of the views to average, the most confident, as ``select_confident`` picks them (default None: all).

    Returns:
        A prediction; for several images a batch of them.

    >>> prompts = tpt_lib.class_prompts(model, ["cat", "dog"])
    >>> average_predict(model, prompts, torch.eye(256)[:20], fraction=0.1).selected.shape
    torch.Size([2])
    """
    check_features("average_predict", features)
    logits, selected = trusted_logits(model, prompts, features, fraction)
    return Prediction(
        prompts.names, log_marginal(selected_rows(logits, selected)), plain(prompts, logits), selected=selected
    )


def trusted_logits(
    model: ClipLike, prompts: ClassPrompts, features: Tensor, fraction: float | None
) -> tuple[Tensor, Tensor | None]:
    """Return the logits of all views ``(*b, N, K)``, and the indices of those to use, None for all."""
    logits = unchecked_logits(model, features, start_features(model, prompts, features))
    return logits, None if fraction is None else select_confident(logits, fraction=fraction)


def selected_rows(logits: Tensor, selected: Tensor | None) -> Tensor:
    return logits if selected is None else logits.take_along_dim(selected[..., None], dim=-2)


def plain(prompts: ClassPrompts, logits: Tensor) -> Prediction:
    """Return the zero-shot prediction, that of row 0."""
    return Prediction(prompts.names, logits[..., 0, :])
