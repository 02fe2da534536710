"""Classify the plain image with unchanged prompts: CLIP's zero-shot, and CoOp's and CoCoOp's own prediction."""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor

from tpt_lib.logits import unchecked_logits
from tpt_lib.methods.base import check_features, method
from tpt_lib.models.protocol import ClipLike
from tpt_lib.prediction import Prediction
from tpt_lib.prompts.class_prompts import ClassPrompts
from tpt_lib.text.initial import start_features

__all__ = ["zero_shot_predict"]


@method(name="zero_shot", title="zero-shot", paper="Radford et al., ICML 2021", published="CLIP")
def zero_shot_predict(model: ClipLike, prompts: ClassPrompts, features: Float[Tensor, "*b n e"]) -> Prediction:
    """Classify the plain image with the prompts as they are (section 3.1).

    Args:
        model: the model.
        prompts: hand-crafted or learned; several templates are averaged; a CoCoOp context is shifted by the feature of row 0.
        features: normalized features ``(N, E)``, row 0 the plain image; ``(B, N, E)`` for several images.

    Returns:
        A prediction; for several images a batch of them.

    >>> prompts = tpt_lib.class_prompts(model, ["cat", "dog", "red panda"])
    >>> zero_shot_predict(model, prompts, torch.eye(256)[:1]).probs.shape
    torch.Size([3])
    """
    check_features("zero_shot_predict", features)
    text = start_features(model, prompts, features)
    return Prediction(prompts.names, unchecked_logits(model, features[..., :1, :], text)[..., 0, :])
