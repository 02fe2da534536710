"""Contexts that are not words: random ones, and those that CoOp and CoCoOp learned."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import SupportsIndex

import torch
from jaxtyping import Float
from torch import Tensor

from tpt_lib.models.protocol import ClipLike

__all__ = ["LearnedPrompt", "MetaNet", "gaussian_context"]


@dataclass(frozen=True)
class MetaNet:
    """CoCoOp's meta-network: maps an image feature ``(…, E)`` to a shift of every context token ``(…, D)``."""

    weight1: Float[Tensor, "h e"]
    bias1: Float[Tensor, " h"]
    weight2: Float[Tensor, "d h"]
    bias2: Float[Tensor, " d"]

    def __call__(self, feature: Float[Tensor, "*b e"]) -> Float[Tensor, "*b d"]:
        return (feature @ self.weight1.mT + self.bias1).relu() @ self.weight2.mT + self.bias2

    @property
    def parts(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """The weights and biases, in the order of the fields."""
        return self.weight1, self.bias1, self.weight2, self.bias2

    def to(self, device: torch.device) -> MetaNet:
        """Copy the network to a device.

        Args:
            device: the device.

        Returns:
            A new network on the device. This one does not change.
        """
        return MetaNet(*(part.to(device) for part in self.parts))


@dataclass(frozen=True)
class LearnedPrompt:
    """A context learned elsewhere: CoOp's ``(L, D)`` or class-specific ``(K, L, D)``, or CoCoOp's with its net."""

    context: Float[Tensor, "*k l d"]
    meta_net: MetaNet | None = None


def gaussian_context(
    model: ClipLike, length: int, *, sigma: float = 0.02, seed: int = 0, n_classes: int | None = None
) -> Float[Tensor, "*k l d"]:
    r"""Draw embeddings from :math:`\mathcal N(0, \sigma^2)`, the initial context of CoOp and of Bongard problems.

    Args:
        model: gives the width ``D``.
        length: number of tokens ``L``.
        sigma: standard deviation (default 0.02, that of CLIP's own token embeddings).
        seed: seed of the draw (default 0). The draw is the same on every device.
        n_classes: number of classes K, for a class-specific context (default None: one context for all classes).

    Returns:
        A context ``(L, D)`` or ``(K, L, D)`` on the model's device.

    >>> gaussian_context(model, 4).shape
    torch.Size([4, 256])
    """
    counts = {"length": length} if n_classes is None else {"length": length, "n_classes": n_classes}
    for name, count in counts.items():
        if not isinstance(count, SupportsIndex) or count.__index__() < 1:
            raise ValueError(f"gaussian_context: {name} must be an int of at least 1, but got {count!r}")
    if not isinstance(seed, SupportsIndex):
        raise TypeError(f"gaussian_context: seed must be an int, but got {type(seed).__name__}")
    if not 0 <= sigma < math.inf:
        raise ValueError(f"gaussian_context: sigma must be a finite number of at least 0, but got {sigma!r}")
    embedded = model.embed_tokens(model.tokenize(["a"]))
    shape = (length, embedded.shape[-1]) if n_classes is None else (n_classes, length, embedded.shape[-1])
    return (sigma * torch.randn(shape, generator=torch.Generator().manual_seed(seed.__index__()))).to(embedded.device)
