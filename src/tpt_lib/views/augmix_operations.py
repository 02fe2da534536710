"""Compute AugMix's nine operations as PIL does, on a CPU.

Each takes a batch of 8-bit images ``(N, 3, H, W)`` and an amount per image ``(N,)``, and returns images of the same shape.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor


def autocontrast(images: Tensor, _: Tensor) -> Tensor:
    """Stretch each channel to 0..255."""
    low, high = (f(images.flatten(2), dim=2)[..., None].double() for f in (torch.amin, torch.amax))
    scale = torch.full_like(low, 255) / (high - low)  # 255 / x is 255 * (1 / x) in torch, which rounds differently
    level = torch.arange(256)
    return look_up(images, torch.where(high > low, level * scale - low * scale, level).byte())


def equalize(images: Tensor, _: Tensor) -> Tensor:
    """Equalize the histogram of each channel."""
    planes = images.flatten(2)
    histogram = torch.stack([plane.bincount(minlength=256) for plane in planes.flatten(0, 1)]).view(-1, 3, 256)
    return look_up(images, equalizing(histogram, planes.amax(dim=2, keepdim=True)))


def equalizing(histogram: Tensor, highest: Tensor) -> Tensor:
    """Return the tables that equalize channels.

    Args:
        histogram: number of pixels of each level ``(N, 3, 256)``.
        highest: highest level of each channel ``(N, 3, 1)``.

    Returns:
        New levels, uint8 ``(N, 3, 256)``.
    """
    brightest = histogram.gather(2, highest.long())
    step = (histogram.sum(dim=2, keepdim=True) - brightest) // 255
    table = (step // 2 + histogram.cumsum(dim=2) - histogram) // step.clamp(min=1)
    level = torch.arange(256, device=histogram.device)
    return torch.where(step > 0, table.clamp(max=255), level).byte()


def look_up(images: Tensor, tables: Tensor) -> Tensor:
    """Map each channel of each image by its own table, from ``tables`` ``(N, 3, 256)``."""
    return tables.gather(2, images.flatten(2).long()).view(images.shape)


def posterize(images: Tensor, bits: Tensor) -> Tensor:
    """Keep the highest bits of each level."""
    return images & _each(256 - 2 ** (8 - bits))


def solarize(images: Tensor, threshold: Tensor) -> Tensor:
    """Invert the levels from a threshold in 1..256 on."""
    return images ^ (255 * (images > _each(threshold - 1)).view(torch.uint8))


def _each(amount: Tensor) -> Tensor:
    return amount.byte()[:, None, None, None]


def translate_x(images: Tensor, pixels: Tensor) -> Tensor:
    """Move images to the left by whole pixels, and fill with black."""
    moved = torch.zeros_like(images)
    for image, out, by in zip(images, moved, pixels.int().tolist(), strict=True):
        kept = image[..., max(0, by) : max(0, image.shape[-1] + by)]
        out[..., max(0, -by) :][..., : kept.shape[-1]] = kept
    return moved


def translate_y(images: Tensor, pixels: Tensor) -> Tensor:
    """Move images up by whole pixels, and fill with black."""
    return translate_x(images.mT, pixels).mT


def shear_x(images: Tensor, tangent: Tensor) -> Tensor:
    """Shear images along their rows: row y is read ``tangent * (y + 0.5)`` pixels further to the right.

    A shifted row interpolates between a window of the padded row and the window one pixel to the right of it.
    """
    n, channels, height, width = images.shape
    shift = tangent[:, None] * (torch.arange(height) + 0.5)
    reach = int(shift.abs().max()) + 2
    left, right = (edge.expand(-1, -1, -1, reach) for edge in (images[..., :1], images[..., -1:]))
    rows = torch.arange(n * channels * height).view(n, channels, height) * (width + 2 * reach) + reach
    pair = _windows(torch.cat([left, images, right], dim=-1), rows + shift.floor().long()[:, None], width + 1).float()
    between = (shift - shift.floor()).float()[:, None, :, None]
    read = torch.lerp(pair[..., :-1], pair[..., 1:], between)
    valid = torch.zeros(width + 2 * reach, dtype=torch.uint8)
    valid[reach:-reach] = 1
    inside = _windows(valid, (shift + 0.5).floor().long() + reach, width)
    return read.short().byte().mul_(inside[:, None])  # directly from float to byte is slower


def shear_y(images: Tensor, tangent: Tensor) -> Tensor:
    """Shear images along their columns."""
    return shear_x(images.mT.contiguous(), tangent).mT.contiguous()


def _windows(x: Tensor, start: Tensor, length: int) -> Tensor:
    """Return ``x[i : i + length]`` of the flattened ``x``, for each ``i`` of ``start``."""
    every = x.as_strided((x.numel() - length + 1, length), (1, 1))
    return every.index_select(0, start.flatten()).view(*start.shape, length)


def rotate(images: Tensor, degrees: Tensor) -> Tensor:
    """Rotate images about their center, bilinearly: pixel (x, y) is read at (cos x - sin y, sin x + cos y).

    Outside the image, the result is black. Within half a pixel of the border, the border is repeated.
    """
    cos, sin = (f(degrees.deg2rad())[:, None] for f in (torch.cos, torch.sin))
    height, width = images.shape[2:]
    x, y = (torch.arange(length) + 0.5 - length / 2 for length in (width, height))
    # in units of half the image, as grid_sample expects: the part that depends on x, then the part that depends on y
    along = torch.stack([cos * x * 2 / width, sin * x * 2 / height], dim=1).float()
    down = torch.stack([-sin * y * 2 / width, cos * y * 2 / height], dim=1).float()
    place = along[:, :, None, :] + down[:, :, :, None]
    read = F.grid_sample(images.float(), place.permute(0, 2, 3, 1), padding_mode="border", align_corners=False)
    inside = place.abs().amax(dim=1, keepdim=True) < 1
    return read.add_(2e-4).short().byte().mul_(inside)  # PIL truncates; float32's rounding must not cost a level
