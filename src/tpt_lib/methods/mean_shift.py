"""Mean shift over the views of images, with learned weights of the views."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

ROUNDS, UPDATES, STOP = 5, 5, 1e-6
NARROWEST = 1e-8  # squared bandwidth of identical views


def mean_shift(
    views: Float[Tensor, "*b n e"], probs: Float[Tensor, "*b n k"], lambda_q: float, lambda_y: float
) -> Float[Tensor, "*b 1 e"]:
    """Return the mode of the views' features by MTA's rounds of updates; see ``mta_predict``.

    An image stops where a change is below 1e-6, by a mask, so that images do not wait for each other or for the host.
    """
    widths, agreement = _twice_squared_bandwidths(views), lambda_q * probs @ probs.mT

    def kernel(mode: Tensor) -> Tensor:
        return (-(views - mode).square().sum(dim=-1) / widths).exp()

    trust, mode = torch.full_like(widths, 1 / views.shape[-2]), views[..., :1, :]
    for _ in range(ROUNDS):
        near, going = kernel(mode), torch.ones_like(widths[..., :1], dtype=torch.bool)
        for _ in range(UPDATES):
            after = ((near + (agreement @ trust[..., None])[..., 0]) / lambda_y).softmax(dim=-1)
            trust, going = _step(trust, after, going)
        going = torch.ones_like(mode[..., :1], dtype=torch.bool)
        for _ in range(UPDATES):
            total = (kernel(mode) * trust)[..., None, :] @ views
            after = torch.where(total.any(dim=-1, keepdim=True), F.normalize(total, dim=-1), mode)
            mode, going = _step(mode, after, going)
    return mode


def _step(before: Tensor, after: Tensor, going: Tensor) -> tuple[Tensor, Tensor]:
    """Return the next value of images that are still going, and which of them go on."""
    return torch.where(going, after, before), going & ((after - before).norm(dim=-1, keepdim=True) >= STOP)


def _twice_squared_bandwidths(views: Tensor) -> Tensor:
    others = views.shape[-2] - 1
    near = max(1, int(0.3 * others))
    squares = torch.cdist(views, views, compute_mode="donot_use_mm_for_euclid_dist").square()
    nearest = squares.topk(1 + min(near, others), largest=False).values  # each view itself is one of them, at 0
    return (nearest.sum(dim=-1) / near).clamp(min=2 * NARROWEST)
