"""Where a context comes from, other than words: chance, CoOp, CoCoOp."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from tpt_lib.models.protocol import ClipLike

__all__ = ["BiasNet", "LearnedPrompt", "gaussian_context"]


@dataclass(frozen=True)
class BiasNet:
    """CoCoOp's meta-network: an image feature ``(…, E)`` to a shift of every context token ``(…, D)``."""

    weight1: Float[Tensor, "h e"]
    bias1: Float[Tensor, " h"]
    weight2: Float[Tensor, "d h"]
    bias2: Float[Tensor, " d"]

    def __call__(self, feature: Float[Tensor, "*b e"]) -> Float[Tensor, "*b d"]:
        return (feature @ self.weight1.mT + self.bias1).relu() @ self.weight2.mT + self.bias2

    @property
    def parts(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        return self.weight1, self.bias1, self.weight2, self.bias2

    def to(self, device: torch.device) -> BiasNet:
        return BiasNet(*(part.to(device) for part in self.parts))


@dataclass(frozen=True)
class LearnedPrompt:
    """A context learned elsewhere: CoOp's ``(L, D)`` or class-specific ``(K, L, D)``, or CoCoOp's with its net."""

    context: Float[Tensor, "*k l d"]
    bias_net: BiasNet | None = None


def gaussian_context(
    model: ClipLike, length: int, *, sigma: float = 0.02, seed: int = 0, classes: int | None = None
) -> Float[Tensor, "*k l d"]:
    r"""Embeddings drawn from :math:`\mathcal N(0, \sigma^2)`, as CoOp starts and as Bongard problems are tuned from.

    Args:
        model: gives the width ``D``.
        length: how many tokens, ``L``.
        sigma: the standard deviation; that of CLIP's own token embeddings by default.
        seed: fixes the draw, on any device.
        classes: for ``(K, L, D)`` instead of ``(L, D)``.

    >>> gaussian_context(model, 4).shape
    torch.Size([4, 256])
    """
    if length < 1:
        raise ValueError(f"gaussian_context: length must be at least 1, but got {length}")
    embedded = model.embed_tokens(model.tokenize(["a"]))
    shape = (length, embedded.shape[-1]) if classes is None else (classes, length, embedded.shape[-1])
    return (sigma * torch.randn(shape, generator=torch.Generator().manual_seed(seed))).to(embedded.device)
