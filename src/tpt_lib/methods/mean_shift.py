"""Mean shift over the views of images, with learned weights of the views."""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor

ROUNDS, UPDATES, STOP = 5, 5, 1e-6
NARROWEST = 1e-8  # squared bandwidth of identical views


def mean_shift(
    views: Float[Tensor, "*b n e"], probs: Float[Tensor, "*b n k"], lambda_q: float, lambda_y: float
) -> Float[Tensor, "*b 1 e"]:
    """Return the mode of the views' features by MTA's rounds of updates; see ``mta_predict``.

    The views' weights are a softmax of logarithms, since they may all be too small for float32.
    """
    steepness = -1 / twice_squared_bandwidths(squared_distances(views))[..., None, :]
    agreement = (lambda_q / lambda_y) * probs @ probs.mT

    def log_kernel(mode: Tensor) -> Tensor:
        return steepness * torch.linalg.vector_norm(views - mode, dim=-1)[..., None, :].square()

    scores, mode = torch.zeros_like(steepness), views[..., :1, :]
    trust = scores.softmax(dim=-1)
    for _ in range(ROUNDS):
        near, trusts, every = log_kernel(mode).exp() / lambda_y, [trust], [scores]
        for _ in range(UPDATES):
            every.append(near + trusts[-1] @ agreement)
            trusts.append(every[-1].softmax(dim=-1))
        at = first_still(torch.stack(trusts))
        trust, scores = (torch.stack(each).take_along_dim(at, dim=0)[0] for each in (trusts, every))
        modes = [mode]
        for _ in range(UPDATES):
            total = (log_kernel(modes[-1]) + scores).softmax(dim=-1) @ views
            modes.append(total / torch.linalg.vector_norm(total, dim=-1, keepdim=True))
        moved = torch.stack(modes)
        mode = moved.take_along_dim(first_still(moved), dim=0)[0]
    return mode


def first_still(values: Float[Tensor, "updates *b 1 d"]) -> Int[Tensor, "1 *b 1 1"]:
    """Return for each image the number of the first update that changed its value by less than 1e-6, else of the last.

    No update waits for the host, and no image for another.
    """
    still = torch.linalg.vector_norm(values[1:] - values[:-1], dim=-1, keepdim=True) < STOP
    still[-1] = True
    return 1 + still.byte().argmax(dim=0, keepdim=True)


def squared_distances(views: Float[Tensor, "*b n e"]) -> Float[Tensor, "*b n n"]:
    """Return the squared distances between views, as exact as their differences are."""
    if views.device.type == "mps":  # has no float64
        return torch.cdist(views, views, compute_mode="donot_use_mm_for_euclid_dist").square()
    exact = views.double()
    products = exact @ exact.mT
    squares = products.diagonal(dim1=-2, dim2=-1)
    return (squares[..., None] + squares[..., None, :] - 2 * products).clamp(min=0).float()


def twice_squared_bandwidths(squares: Float[Tensor, "*b n n"]) -> Float[Tensor, "*b n"]:
    """Return the mean squared distance of each view to the nearest 30% of the others."""
    others = squares.shape[-1] - 1
    near = max(1, int(0.3 * others))
    nearest = squares.topk(1 + min(near, others), largest=False).values  # each view itself is one of them, at 0
    return (nearest.sum(dim=-1) / near).clamp(min=2 * NARROWEST)
