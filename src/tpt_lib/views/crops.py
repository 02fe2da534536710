"""Sample the boxes of random resized crops; cut, mirror and resize them."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Int, UInt8
from torch import Tensor

from tpt_lib.views.crops_batched import cut_boxes
from tpt_lib.views.devices import fill
from tpt_lib.views.seeding import uniform_rows

__all__ = ["Crops", "apply_crops", "sample_crops"]

ATTEMPTS = 10


@dataclass(frozen=True)
class Crops:
    """Hold N boxes of an image.

    Args:
        top: first row of each box ``(N,)``, in pixels.
        left: first column of each box ``(N,)``.
        height: number of rows ``(N,)``.
        width: number of columns ``(N,)``.
        flip: whether each crop is mirrored ``(N,)``.
    """

    top: Int[Tensor, " n"]
    left: Int[Tensor, " n"]
    height: Int[Tensor, " n"]
    width: Int[Tensor, " n"]
    flip: Bool[Tensor, " n"]


def sample_crops(
    n: int,
    size: tuple[int, int],
    *,
    generator: torch.Generator,
    scale: tuple[float, float] = (0.08, 1.0),
    ratio: tuple[float, float] = (3 / 4, 4 / 3),
) -> Crops:
    """Sample N boxes as torchvision's ``RandomResizedCrop`` does.

    A box is the first of ten attempts that fits the image. If none fits, it is the largest box in the middle of the image that
    ``ratio`` allows.

    Args:
        n: number of boxes.
        size: height and width of the image in pixels.
        generator: source of randomness, on the CPU. The first boxes, and what it draws next, do not depend on ``n``.
        scale: lowest and highest share of the image's area that a box covers (default 0.08 to 1), sampled uniformly.
        ratio: lowest and highest width of a box over its height (default 3/4 to 4/3), sampled uniformly in the logarithm.

    Returns:
        Boxes on the CPU, for ``apply_crops``. Each is mirrored with probability 1/2.

    Raises:
        ValueError: if ``scale`` or ``ratio`` is out of range.

    >>> sample_crops(63, (375, 500), generator=torch.Generator().manual_seed(0)).top.shape
    torch.Size([63])
    """
    check_ranges(scale, ratio)
    height, width = size
    uniform = uniform_rows(n, 2 * ATTEMPTS + 3, generator)
    area, shape = uniform[:, :ATTEMPTS], uniform[:, ATTEMPTS : 2 * ATTEMPTS]
    area = height * width * (scale[0] + (scale[1] - scale[0]) * area)
    low, high = map(math.log, ratio)
    aspect = (low + (high - low) * shape).exp()
    w, h = (area * aspect).sqrt().round(), (area / aspect).sqrt().round()
    fits = (w > 0) & (w <= width) & (h > 0) & (h <= height)
    first = fits.int().argmax(dim=1, keepdim=True)
    failed = ~fits.any(dim=1)
    middle_h, middle_w = _middle(height, width, ratio)
    h = h.gather(1, first)[:, 0].masked_fill(failed, middle_h)
    w = w.gather(1, first)[:, 0].masked_fill(failed, middle_w)
    y, x, coin = uniform[:, -3:].unbind(dim=1)
    top = torch.where(failed, (height - middle_h) // 2, (y * (height - h + 1)).long())
    left = torch.where(failed, (width - middle_w) // 2, (x * (width - w + 1)).long())
    return Crops(top, left, h.long(), w.long(), coin < 0.5)


def check_ranges(scale: tuple[float, float], ratio: tuple[float, float]) -> None:
    """Raise a ``ValueError`` if the range of areas or ratios is unusable."""
    if not 0 < scale[0] <= scale[1] <= 1:
        raise ValueError(f"crops: scale must be two shares (low, high) with 0 < low <= high <= 1, but got {scale}")
    if not 0 < ratio[0] <= ratio[1]:
        raise ValueError(f"crops: ratio must be two numbers (low, high) with 0 < low <= high, but got {ratio}")


def apply_crops(
    pixels: UInt8[Tensor, "3 height width"], crops: Crops, size: tuple[int, int]
) -> UInt8[Tensor, "n 3 h w"]:
    """Cut boxes from an image, mirror some, and resize all to one size (bilinear, antialiased).

    On an accelerator, all boxes are cut together, and the CPU does not wait for it.

    Args:
        pixels: raw uint8 image ``(3, H, W)``, as ``read_image`` returns it, on any device.
        crops: the N boxes, from ``sample_crops``.
        size: height and width of each view in pixels.

    Returns:
        Uint8 views ``(N, 3, *size)`` on the device of ``pixels``.

    Raises:
        ValueError: if a box ends outside the image.

    >>> crops = sample_crops(4, (40, 60), generator=torch.Generator().manual_seed(0))
    >>> apply_crops(torch.zeros(3, 40, 60, dtype=torch.uint8), crops, (32, 32)).shape
    torch.Size([4, 3, 32, 32])
    """
    boxes = torch.stack([crops.top, crops.left, crops.height, crops.width], dim=1)
    if len(boxes) and (boxes[:, :2] + boxes[:, 2:] > torch.tensor(pixels.shape[1:])).any():
        raise ValueError(f"apply_crops: a box ends outside the image, which is {tuple(pixels.shape[1:])}")
    boxes = torch.cat([boxes, crops.flip[:, None]], dim=1)
    views = torch.empty(len(boxes), 3, *size, dtype=torch.uint8, device=pixels.device)
    return fill(views, _cut_one_by_one, cut_boxes, pixels, boxes)


def _cut_one_by_one(out: Tensor, pixels: Tensor, boxes: Tensor) -> None:
    """Do what ``cut_boxes`` does with torch's uint8 kernel, which is fast on a CPU and needs one call per box."""
    for view, (top, left, height, width, flip) in zip(out, boxes.tolist(), strict=True):
        box = pixels[None, :, top : top + height, left : left + width]
        box = box.contiguous(memory_format=torch.channels_last)  # on which the kernel is fastest
        resized = F.interpolate(box, view.shape[1:], mode="bilinear", antialias=True)[0]
        view.copy_(resized.flip(-1) if flip else resized)


def _middle(height: int, width: int, ratio: tuple[float, float]) -> tuple[int, int]:
    """Return height and width of the largest box with the allowed ratio nearest to the image's."""
    if width / height < ratio[0]:
        return max(1, round(width / ratio[0])), width
    if width / height > ratio[1]:
        return height, max(1, round(height * ratio[1]))
    return height, width
