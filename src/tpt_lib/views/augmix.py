"""Apply AugMix (Hendrycks et al., ICLR 2020) with given parameters."""

from __future__ import annotations

import torch
from jaxtyping import Float, UInt8
from torch import Tensor

from tpt_lib.views import augmix_operations as operations
from tpt_lib.views.augmix_batched import mix_batched
from tpt_lib.views.augmix_parameters import CHAINS, DEPTH, AugMix, shares_of, steps_of
from tpt_lib.views.devices import fill

__all__ = ["apply_augmix"]

IN_CACHE = 4  # batch size of an operation on a CPU


def apply_augmix(views: UInt8[Tensor, "n 3 h w"], params: AugMix) -> Float[Tensor, "n 3 h w"]:
    """Apply AugMix with given parameters.

    Convention: operations are PIL's, on 8 bits. Their results are mixed in float32. On an accelerator, all views are made
    together, and the CPU does not wait for it.

    Args:
        views: uint8 pixels ``(N, 3, H, W)``, as ``apply_crops`` returns them.
        params: parameters of the N views, from ``sample_augmix``.

    Returns:
        Float32 views in [0, 1] ``(N, 3, H, W)``. The released code mixes after normalization, which is equivalent because the
        weights sum to 1.

    Raises:
        ValueError: if there are parameters for another number of views.

    >>> params = tpt_lib.views.sample_augmix(2, (8, 8), generator=torch.Generator().manual_seed(0))
    >>> apply_augmix(torch.zeros(2, 3, 8, 8, dtype=torch.uint8), params).shape
    torch.Size([2, 3, 8, 8])
    """
    if len(views) != len(params.plain):
        raise ValueError(f"apply_augmix: there are {len(views)} views, but parameters for {len(params.plain)}")
    return mix_into(torch.empty(views.shape, device=views.device, dtype=torch.float32), views, params)


def mix_into(mixed: Tensor, views: Tensor, params: AugMix) -> Tensor:
    """Write the result of ``apply_augmix`` to ``mixed`` and return it."""
    return fill(mixed, _mix_one_by_one, mix_batched, views, params)


def _mix_one_by_one(mixed: Tensor, views: Tensor, params: AugMix) -> None:
    shares = shares_of(params)
    chains = _chains(views, params)
    for i, view in enumerate(views):  # one view at a time stays in the processor's cache
        torch.mul(view, shares[i, 0], out=mixed[i])
        for k in range(CHAINS):
            mixed[i].addcmul_(chains[CHAINS * i + k], shares[i, 1 + k])


def _chains(views: Tensor, params: AugMix) -> list[Tensor]:
    """Return the last image of each chain. At each step, an operation is applied to a batch of images."""
    images = [view for view in views for _ in range(CHAINS)]
    for step in range(DEPTH):
        for name, chosen, amount in steps_of(params, step):
            for first in range(0, len(chosen), IN_CACHE):
                rows = chosen[first : first + IN_CACHE].tolist()
                batch = torch.stack([images[i] for i in rows])
                batch = getattr(operations, name)(batch, amount[first : first + IN_CACHE])
                for i, image in zip(rows, batch, strict=True):
                    images[i] = image
    return images
