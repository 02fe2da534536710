"""Average the probabilities of several prompts, each with its own method."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from tpt_lib.methods.base import Method
from tpt_lib.methods.zero_shot import zero_shot_predict
from tpt_lib.models.protocol import ClipLike
from tpt_lib.objectives import log_marginal
from tpt_lib.prediction import Prediction
from tpt_lib.prompts.class_prompts import ClassPrompts

__all__ = ["prompt_ensemble_predict"]


def prompt_ensemble_predict(
    model: ClipLike,
    prompts: Sequence[ClassPrompts],
    features: Float[Tensor, "*b n e"],
    *,
    method: Method | Sequence[Method] = zero_shot_predict,
) -> Prediction:
    """Average the probabilities that several prompts give (appendix A.2: CoOp with three seeds, CoOp + CoCoOp, …).

    Args:
        model: the model.
        prompts: one or more prompts of the same classes.
        features: normalized features ``(N, E)``, row 0 the plain image; ``(B, N, E)`` for several images.
        method: the method that predicts with each prompt (default zero-shot), or a list with one method per prompt.

    Returns:
        A prediction; for several images a batch of them.

    >>> seeds = [tpt_lib.gaussian_context(model, 4, seed=s) for s in range(3)]
    >>> coops = [tpt_lib.class_prompts(model, ["cat", "dog"], context=context) for context in seeds]
    >>> prompt_ensemble_predict(model, coops, torch.eye(256)[:1]).probs.shape
    torch.Size([2])
    """
    if isinstance(prompts, ClassPrompts) or not prompts:
        raise TypeError(
            "prompt_ensemble_predict: prompts must be a list of one or more ClassPrompts, as class_prompts returns them, but "
            f"got {'one' if prompts else 'none'}"
        )
    methods: Any = [method] * len(prompts) if callable(method) else list(method)
    if len(methods) != len(prompts):
        raise ValueError(f"prompt_ensemble_predict: there are {len(prompts)} prompts, but {len(methods)} methods")
    if odd := next((p for p in prompts if p.names != prompts[0].names), None):
        raise ValueError(
            f"prompt_ensemble_predict: all prompts must have the same classes in the same order, but one has "
            f"{list(odd.names)[:4]} and another {list(prompts[0].names)[:4]}"
        )
    found = [f(model, p, features).logits for f, p in zip(methods, prompts, strict=True)]
    return Prediction(prompts[0].names, log_marginal(torch.stack(found, dim=-2)))
