"""Vary drawings at every step: crop, turn and blur them, change ground and colors, reduce them to lines."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

SMALLEST = 0.12  # area of a crop, relative to the drawing
LUMA = torch.tensor([0.299, 0.587, 0.114]).view(1, 3, 1, 1)
# the columns of ``augment``'s second result: what was done to a drawing, which captions may say
DONE = ("close", "mirrored", "turned", "colored ground", "recolored", "gray", "ink", "lines", "blurred", "negative")


def levels(drawings: Tensor) -> tuple[Tensor, Tensor]:
    """Return drawings ``(K, 4, S, S)``, uint8, as floats with color times alpha, at full and at half size."""
    straight = drawings.float() / 255
    full = torch.cat([straight[:, :3] * straight[:, 3:], straight[:, 3:]], 1)
    return full, F.avg_pool2d(full, 2)


def augment(
    drawings: tuple[Tensor, Tensor], chosen: Tensor, size: int, generator: torch.Generator, strength: float = 1.0
) -> tuple[Tensor, Tensor]:
    """Return random variations ``(B, 3, size, size)`` in [0, 1] of the chosen of ``levels(drawings)``, and what was done.

    ``strength`` in [0, 1] scales how often each change is made, and how small crops are.
    """
    n = len(chosen)

    def uniform(low: float, high: float, *shape: int) -> Tensor:
        return torch.rand(n, *shape, generator=generator) * (high - low) + low

    def chance(p: float) -> Tensor:
        return torch.rand(n, generator=generator) < p * strength

    cut, turned, mirrored = chance(0.75), chance(0.35), chance(0.5)
    area = torch.where(cut, uniform(1 - (1 - SMALLEST) * strength, 1.0), uniform(0.85, 1.3))
    ratio = uniform(-0.3, 0.3).exp()
    angle = torch.where(turned, uniform(-0.45, 0.45), torch.zeros(n))
    wide, high = (area * ratio).sqrt(), (area / ratio).sqrt()
    x, y = ((1 - side).clamp_min(0.05) * uniform(-1, 1) for side in (wide, high))
    flip = 1 - 2.0 * mirrored
    cos, sin = angle.cos(), angle.sin()
    theta = torch.stack([cos * wide * flip, -sin * high, x, sin * wide * flip, cos * high, y], -1).view(n, 2, 3)
    color, alpha = _sample(drawings, chosen, theta, size, fine=area < 0.55)

    colored = chance(0.4)
    first, second = uniform(0, 1, 3, 1, 1), uniform(0, 1, 3, 1, 1)
    ramp = (
        torch.linspace(0, 1, size).view(1, 1, 1, size) if torch.rand((), generator=generator) < 0.5 else torch.zeros(1)
    )
    ground = torch.where(colored.view(n, 1, 1, 1), first + (second - first) * ramp, torch.ones(1))
    pixels = color * alpha + ground * (1 - alpha)

    recolored, gray, ink, lines = chance(0.35), chance(0.15), chance(0.15), chance(0.15)
    blurred, negative = chance(0.12), chance(0.04)
    matrix = torch.eye(3) + uniform(-0.45, 0.45, 3, 3)
    mixed = torch.einsum("bij,bjhw->bihw", matrix / matrix.sum(-1, keepdim=True).clamp_min(0.5), pixels)
    pixels = _where(recolored, (mixed * uniform(0.7, 1.2, 1, 1, 1) + uniform(-0.1, 0.1, 1, 1, 1)).clamp(0, 1), pixels)
    luma = (pixels * LUMA).sum(1, keepdim=True)
    pixels = _where(gray, luma.expand_as(pixels), pixels)
    inked = ((luma - uniform(0.35, 0.8, 1, 1, 1)) * uniform(8, 40, 1, 1, 1)).sigmoid()
    pixels = _where(ink, inked.expand_as(pixels), pixels)
    pixels = _where(lines, _edges(luma, uniform(2, 8, 1, 1, 1)).expand_as(pixels), pixels)
    pixels = _where(blurred, F.avg_pool2d(F.pad(pixels, (2, 2, 2, 2), mode="replicate"), 5, 1), pixels)
    pixels = _where(negative, 1 - pixels, pixels)
    done = (area < 0.3, mirrored, turned, colored, recolored, gray, ink, lines, blurred, negative)
    return pixels, torch.stack(done, -1)


def _sample(
    drawings: tuple[Tensor, Tensor], chosen: Tensor, theta: Tensor, size: int, fine: Tensor
) -> tuple[Tensor, Tensor]:
    """Return color and alpha of the boxes ``theta``; large boxes come from drawings of half the size, so as not to alias."""
    boxes = F.affine_grid(theta, [len(chosen), 4, size, size], align_corners=False)
    out = torch.empty(len(chosen), 4, size, size)
    for level, these in zip(drawings, (fine, ~fine), strict=True):
        out[these] = F.grid_sample(level[chosen[these]], boxes[these], align_corners=False)
    alpha = out[:, 3:]
    return out[:, :3] / alpha.clamp_min(1e-3), alpha


def _edges(luma: Tensor, strength: Tensor) -> Tensor:
    """Return dark lines on white where brightness changes."""
    padded = F.pad(luma, (1, 1, 1, 1), mode="replicate")
    across = padded[..., 1:-1, 2:] - padded[..., 1:-1, :-2]
    down = padded[..., 2:, 1:-1] - padded[..., :-2, 1:-1]
    return 1 - ((across.square() + down.square()).sqrt() * strength).clamp(0, 1)


def _where(chosen: Tensor, then: Tensor, other: Tensor) -> Tensor:
    return torch.where(chosen.view(-1, 1, 1, 1), then, other)
