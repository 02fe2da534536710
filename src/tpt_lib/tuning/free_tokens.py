"""The tokens that are tuned to each image of a batch, and the optimizers that step them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Real

import torch
from torch import Tensor
from torch.optim import ASGD, SGD, Adadelta, Adagrad, Adam, Adamax, AdamW, NAdam, Optimizer, RAdam, RMSprop, Rprop

from tpt_lib.tuning.checks import check_optimizer, inner_function
from tpt_lib.tuning.descent import over
from tpt_lib.types import OptimizerFactory

ELEMENTWISE = (ASGD, SGD, Adadelta, Adagrad, Adam, Adamax, AdamW, NAdam, RAdam, RMSprop, Rprop)


@dataclass(frozen=True)
class FreeTokens:
    """The context of every image, and its free name tokens if there are any, as leaves of one or of several optimizers.

    Elementwise optimizers step all images together: an element's step depends on its own gradients only, so each image gets
    the same step as alone. With any other optimizer, each image has its own leaves and its own optimizer.

    Attributes:
        leaves: for each optimizer, its leaves: the context, then the names.
        before: their initial values.
        optimizers: one for all images, or one per image.
        stacked: whether there is one for all, whose leaves have the images as first dimension.
    """

    leaves: list[list[Tensor]]
    before: list[list[Tensor]]
    optimizers: list[Optimizer]
    stacked: bool

    @classmethod
    def of(cls, start: Sequence[Tensor], optimizer: OptimizerFactory, lr: float) -> FreeTokens:
        """Return tokens that start at these values, each with the images in front."""
        stacked = inner_function(optimizer) in ELEMENTWISE
        before = [list(start)] if stacked else [list(own) for own in zip(*start, strict=True)]
        leaves = [[token.detach().clone().requires_grad_() for token in own] for own in before]
        if not isinstance(lr, Real | Tensor):
            raise TypeError(f"tune_prompt: lr must be a number, but got {lr!r}")
        optimizers = [check_optimizer(optimizer, optimizer(own, lr=lr)) for own in leaves]
        return cls(leaves, before, optimizers, stacked)

    @property
    def values(self) -> list[Tensor]:
        """The current tokens, each with the images in front, as leaves that require gradients."""
        if self.stacked:
            return self.leaves[0]
        return [torch.stack(parts).detach().requires_grad_() for parts in zip(*self.leaves, strict=True)]

    def of_each(self, gradients: Sequence[Tensor]) -> list[list[Tensor]]:
        """Return gradients, given with the images in front, in the layout of the optimizers' leaves."""
        return [list(gradients)] if self.stacked else [list(own) for own in zip(*gradients, strict=True)]

    def where(self, applied: Tensor) -> list[Tensor]:
        """Return the tokens of every image; those before tuning where it was not applied."""
        before = self.before[0] if self.stacked else [torch.stack(parts) for parts in zip(*self.before, strict=True)]
        pairs = zip(self.values, before, strict=True)
        return [torch.where(over(applied, now), now, old) for now, old in pairs]
