"""The beginning and the end of a step, which all online methods share."""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from tpt_lib.features.check import are_unit
from tpt_lib.methods.base import check_features, check_layout
from tpt_lib.models.protocol import ClipLike
from tpt_lib.prediction import Prediction, check_finite, compared_unchecked
from tpt_lib.prompts.class_prompts import ClassPrompts
from tpt_lib.text.initial import keep_features, start_features


def begin(
    caller: str, model: ClipLike, prompts: ClassPrompts, features: Tensor
) -> tuple[Float[Tensor, "k e"], Float[Tensor, "n e"]]:
    """Return the text features that an image starts from, and the views' features in float32 without gradient.

    Only the layout is checked here; ``finish`` checks the values, so that a step waits for an accelerator once.
    """
    check_layout(caller, features)
    if features.ndim != 2:
        raise ValueError(
            f"{caller}: a step takes the features of one image's views (N, E), but got {tuple(features.shape)}; stream takes "
            "several images, in their order"
        )
    return start_features(model, prompts, features), features.detach().float()


def finish(
    caller: str,
    prompts: ClassPrompts,
    features: Tensor,
    logits: Float[Tensor, " k"],
    before: Float[Tensor, " k"],
    **values: Any,
) -> Prediction:
    """Return the prediction of a step, or refuse features or logits that are not finite.

    A step that raises returns no state, so values that are not finite never enter one.
    """
    if not (are_unit(features) & torch.stack([before, logits]).isfinite().all()):
        check_features(caller, features)
        check_finite(caller, before)
        check_finite(caller, logits)
    return compared_unchecked(prompts.names, logits, before, **values)


def initial_features(caller: str, model: ClipLike, prompts: ClassPrompts) -> Float[Tensor, "k e"]:
    """Return a copy of the prompts' text features, for states that start from them."""
    if prompts.meta_net is not None:
        raise ValueError(
            f"{caller}: its state starts from text features, but those of a CoCoOp prompt depend on the image; use a prompt "
            "without a meta-network"
        )
    return keep_features(model, prompts).clone()
