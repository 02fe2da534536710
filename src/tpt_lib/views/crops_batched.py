"""Cut and resize all boxes of an image as two matrix products, for an accelerator.

The weights are the integers that PIL and torch resize bytes with, and rows are rounded to levels between the products as they
do, so the result is the same up to rare roundings.
"""

from __future__ import annotations

import torch
from torch import Tensor

from tpt_lib.views.devices import upload

MOST_TOGETHER = (
    40_000_000  # weights and pixels of resized rows of the boxes that are cut together, which is 0.5 GB at most
)

LARGEST_WEIGHT, MOST_PLACES = 2**15 - 0.5, 22


def cut_boxes(out: Tensor, pixels: Tensor, boxes: Tensor) -> None:
    """Write the resized boxes to ``out``.

    Args:
        out: uint8 views ``(N, 3, h, w)``.
        pixels: uint8 image ``(3, H, W)``, on the same device.
        boxes: top, left, height, width and whether to mirror, int64 ``(N, 5)``, on the CPU.
    """
    _, height, width = pixels.shape
    _, _, n_rows, n_columns = out.shape
    columns = pixels.permute(2, 0, 1).flatten(1).float()
    per_box = 2 * max(n_rows, n_columns) * max(height, width) + 3 * height * n_columns
    together = max(1, MOST_TOGETHER // per_box)
    for views, some in zip(out.split(together), boxes.split(together), strict=True):
        across, down = weights(some, (height, width), (n_rows, n_columns), out.device)
        rows = _levels(across.flatten(0, 1) @ columns).view(len(some), n_columns * 3, height)
        resized = _levels(down @ rows.mT).view(len(some), n_rows, n_columns, 3)
        views.copy_(resized.permute(0, 3, 1, 2))


def weights(
    boxes: Tensor, size: tuple[int, int], size_out: tuple[int, int], device: torch.device
) -> tuple[Tensor, Tensor]:
    r"""Return the antialiased bilinear weights that resize boxes, as PIL and torch round them for bytes.

    Pixel i of o is a mean around :math:`(i + \frac12) \ell / o` of a side of length :math:`\ell`. Pixel j of the side has
    weight :math:`\max(0, 1 - |j + \frac12 - (i + \frac12) \ell / o| / \max(\ell / o, 1))`, computed here in integers. Both axes
    are computed together, at the longer side of each size.

    Args:
        boxes: top, left, height, width and whether to mirror, int64 ``(N, 5)``, on the CPU.
        size: height and width of the image.
        size_out: height and width of the views.
        device: where the weights are made.

    Returns:
        Weights of columns ``(N, w, W)`` and of rows ``(N, h, H)``.
    """
    top, left, height, width, flip = boxes.T
    start, length, flip = torch.cat([left, top]), torch.cat([width, height]), torch.cat([flip, torch.zeros_like(flip)])
    n_out = torch.tensor(size_out).flip(0).repeat_interleave(len(boxes))
    first = torch.where(flip > 0, 2 * n_out - 1, 1) * length
    each = torch.where(flip > 0, -2, 2) * length
    numbers = torch.stack([start, start + length, n_out, first, each, 2 * torch.maximum(length, n_out)])
    start, end, n_out, first, each, reach = upload(numbers, device)[..., None, None].unbind()

    i, j = (torch.arange(max(sides), device=device) for sides in (size_out, size))
    center = first + each * torch.minimum(i[:, None], n_out - 1)
    place = torch.where((j >= start) & (j < end), (2 * (j - start) + 1) * n_out, -reach)
    distance = (center - place).abs_()
    weight = torch.sub(reach, distance, out=distance).clamp_(min=0)
    across, down = _rounded(weight).chunk(2)
    return across[:, : size_out[1], : size[1]], down[:, : size_out[0], : size[0]]


def _rounded(weight: Tensor) -> Tensor:
    """Return weights of sum 1, with as many binary places as leave 15 bits to the largest. Overwrites its argument."""
    total = weight.sum(dim=2, keepdim=True)
    largest = (weight.amax(dim=2, keepdim=True) / total).amax(dim=1, keepdim=True)
    places = (LARGEST_WEIGHT / largest).log2_().long().clamp_(max=MOST_PLACES)
    one = torch.bitwise_left_shift(torch.ones_like(places), places)
    return weight.mul_(one).add_(total // 2).div_(total, rounding_mode="floor").float().div_(one)


def _levels(x: Tensor) -> Tensor:
    return x.add_(0.5).floor_().clamp_(max=255)
