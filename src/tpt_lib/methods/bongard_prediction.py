"""The prediction of a method for the queries of one Bongard problem."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from tpt_lib.prediction import check_finite
from tpt_lib.types import Images

__all__ = ["BongardPrediction"]

SIDES = ("positive", "negative")
ImagesOrFeatures = Images | Tensor
Problem = tuple[ImagesOrFeatures, ImagesOrFeatures, ImagesOrFeatures]


@dataclass(frozen=True, eq=False, repr=False)
class BongardPrediction:
    """Verdicts on the queries of one problem, and how they were computed.

    Attributes:
        logits: logits of each query ``(Q, 2)``, positive first.
        support_logits: logits of the support images ``(P + N, 2)``, the positive ones first.
        positives: number of positive support images.
        losses: the cross-entropy on the supports before each step, and after the last ``(steps + 1,)``; empty for prototypes.
        tuned: whether tuning was applied; False if a loss was not finite, and then the tokens are the initial ones.
        context: the tuned context ``(L, D)``, or None.
        name_tokens: the two tuned class tokens ``(2, 1, D)``, or None.
        images: positives, negatives and queries as they were given, for ``plots.plot_bongard``.
    """

    logits: Float[Tensor, "q 2"]
    support_logits: Float[Tensor, "s 2"]
    positives: int
    losses: Float[Tensor, " steps"]
    tuned: bool
    context: Float[Tensor, "l d"] | None = None
    name_tokens: Float[Tensor, "2 m d"] | None = None
    images: Problem = field(default=((), (), ()))

    def __post_init__(self) -> None:
        check_finite("BongardPrediction", self.logits)

    @property
    def probs(self) -> Float[Tensor, " q"]:
        """The probability of each query being positive."""
        return self.logits.softmax(dim=-1)[:, 0]

    @property
    def verdicts(self) -> tuple[str, ...]:
        """``"positive"`` or ``"negative"`` for each query; equal logits are positive."""
        return tuple(SIDES[i] for i in self.logits.argmax(dim=-1).tolist())

    @property
    def support_accuracy(self) -> float:
        """The share of support images that are classified correctly."""
        truth = torch.arange(len(self.support_logits), device=self.support_logits.device) >= self.positives
        return float((self.support_logits.argmax(dim=-1) == truth).float().mean())

    def to_dict(self) -> dict[str, Any]:
        """Return the result as JSON types, without tokens and images.

        Returns:
            A dict of the verdicts, probabilities, losses and the accuracy on the support images.
        """
        return {
            "verdicts": list(self.verdicts),
            "probs": self.probs.tolist(),
            "logits": self.logits.tolist(),
            "support_accuracy": self.support_accuracy,
            "losses": self.losses.tolist(),
            "tuned": self.tuned,
        }

    def __repr__(self) -> str:
        said = ", ".join(f"{v} {max(p, 1 - p):.2f}" for v, p in zip(self.verdicts, self.probs.tolist(), strict=True))
        return f"<BongardPrediction {said}; supports {self.support_accuracy:.0%} right{'' if self.tuned else '; not tuned'}>"
