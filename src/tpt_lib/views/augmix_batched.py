"""Apply AugMix to all views together, for an accelerator: its cost per operation is paid once, whatever the number of views.

The nine operations reduce to two. Autocontrast, equalize, posterize and solarize map each level by a table. The others move
pixels and interpolate between the four nearest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from tpt_lib.views import augmix_operations as operations
from tpt_lib.views.augmix_parameters import CHAINS, DEPTH, AugMix, shares_of, steps_of
from tpt_lib.views.devices import upload

MOST_TOGETHER = 2**25  # levels in the chains of the views that are mixed together: 74 views of 224 x 224


def mix_batched(mixed: Tensor, views: Tensor, params: AugMix) -> None:
    """Write the mixtures of ``views`` ``(N, 3, H, W)`` to ``mixed``, on the same device."""
    together = max(1, MOST_TOGETHER // (CHAINS * views.shape[1:].numel()))
    columns = (column.split(together) for column in vars(params).values())
    for out, part, *drawn in zip(mixed.split(together), views.split(together), *columns, strict=True):
        _mix(out, part, AugMix(*drawn))


def _mix(mixed: Tensor, views: Tensor, params: AugMix) -> None:
    shares = upload(shares_of(params), views.device)[..., None, None, None]
    images = views.repeat_interleave(CHAINS, dim=0)
    for mapped, n_stretched, tables, moved, offsets in _steps(params, views):
        if len(mapped):
            images.index_copy_(0, mapped, map_levels(images.index_select(0, mapped), n_stretched, tables))
        if len(moved):
            images.index_copy_(0, moved, move(images.index_select(0, moved), offsets))
    torch.mul(views, shares[:, 0], out=mixed)
    for k in range(CHAINS):
        mixed.addcmul_(images[k::CHAINS].float(), shares[:, 1 + k])


def _steps(params: AugMix, views: Tensor) -> Iterator[tuple[Tensor, int, Tensor, Tensor, Tensor]]:
    """Return, for each step, the chains whose levels are mapped or that are moved, and the arguments to do so."""
    height, width = views.shape[2:]
    steps = [{name: rest for name, *rest in steps_of(params, step)} for step in range(DEPTH)]
    columns = (
        [torch.cat([step[name][0] for name in ("autocontrast", "equalize", *TABLES)]) for step in steps],
        [torch.cat([table(step[name][1]) for name, table in TABLES.items()]) for step in steps],
        [torch.cat([step[name][0] for name in OFFSETS]) for step in steps],
        [torch.cat([offsets(step[name][1], height, width) for name, offsets in OFFSETS.items()]) for step in steps],
    )
    mapped, tables, moved, offsets = (_upload_together(column, views.device) for column in columns)
    n_stretched = [len(step["autocontrast"][0]) for step in steps]
    return zip(mapped, n_stretched, tables, moved, offsets, strict=True)


def _upload_together(parts: list[Tensor], device: torch.device) -> tuple[Tensor, ...]:
    return upload(torch.cat(parts), device).split([len(part) for part in parts])


def map_levels(images: Tensor, n_stretched: int, tables: Tensor) -> Tensor:
    """Map the levels of each image.

    Args:
        images: uint8 images ``(M, 3, H, W)``: those to autocontrast, then those to equalize, then those with a table.
        n_stretched: number of images to autocontrast.
        tables: new levels of the last images, uint8 ``(T, 256)``.

    Returns:
        Uint8 images ``(M, 3, H, W)``.
    """
    stretched, equalized, _ = images.split([n_stretched, len(images) - n_stretched - len(tables), len(tables)])
    every = [_stretching(stretched), _equalizing(equalized), tables[:, None].expand(-1, 3, -1)]
    return operations.look_up(images, torch.cat(every))


def _stretching(images: Tensor) -> Tensor:
    """Return the tables of autocontrast. PIL's are in float64 and one level lower where that rounds a whole number down."""
    low, high = (f(images.flatten(2), dim=2)[..., None] for f in (torch.amin, torch.amax))
    level = torch.arange(256, device=images.device)
    stretched = (level - low) * 255 // (high - low).clamp_(min=1)  # may wrap outside low..high, where no pixel is
    return torch.where(high > low, stretched, level).byte()


def _equalizing(images: Tensor) -> Tensor:
    planes = images.flatten(2)
    histogram = planes.new_zeros(*planes.shape[:2], 256, dtype=torch.int32)
    histogram.scatter_add_(2, planes.long(), histogram.new_ones(1).expand(planes.shape))
    return operations.equalizing(histogram, planes.amax(dim=2, keepdim=True))


def _table(operation: Callable[[Tensor, Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    """Return a function from amounts ``(T,)`` to what the operation makes of each level ``(T, 256)``."""
    return lambda amount: operation(torch.arange(256, dtype=torch.uint8)[None, None, None], amount).flatten(1)


TABLES = {"posterize": _table(operations.posterize), "solarize": _table(operations.solarize)}


def _rotation(degrees: Tensor, height: int, width: int) -> Tensor:
    cos, sin = degrees.deg2rad().cos() - 1, degrees.deg2rad().sin()
    x, y = 0.5 - width / 2, 0.5 - height / 2
    return _offsets(cos * x - sin * y, cos, -sin, sin * x + cos * y, sin, cos)


def _offsets(*numbers: Tensor | int) -> Tensor:
    return torch.stack(torch.broadcast_tensors(*map(torch.as_tensor, numbers)), dim=1).float()


# where a pixel (x, y) is read from: at x + a + b x + c y and y + d + e x + f y, six numbers per image
OFFSETS: dict[str, Callable[[Tensor, int, int], Tensor]] = {
    "rotate": _rotation,
    "shear_x": lambda tangent, *_: _offsets(tangent / 2, 0, tangent, 0, 0, 0),
    "shear_y": lambda tangent, *_: _offsets(0, 0, 0, tangent / 2, tangent, 0),
    "translate_x": lambda pixels, *_: _offsets(pixels, 0, 0, 0, 0, 0),
    "translate_y": lambda pixels, *_: _offsets(0, 0, 0, pixels, 0, 0),
}


def move(images: Tensor, offsets: Tensor) -> Tensor:
    """Read each pixel from another place, bilinearly. Outside the image, the result is black.

    Args:
        images: uint8 images ``(M, 3, H, W)``.
        offsets: six numbers per image ``(M, 6)``, from ``OFFSETS``.

    Returns:
        Uint8 images ``(M, 3, H, W)``.
    """
    height, width = images.shape[2:]
    x, y = (torch.arange(n, device=images.device, dtype=torch.float32) for n in (width, height))
    x, y, (a, b, c, d, e, f) = x, y[:, None], offsets[..., None, None].unbind(dim=1)
    left, right, rightward, inside_x = _neighbors(torch.addcmul(torch.addcmul(a, b, x), c, y), x, width)
    top, bottom, downward, inside_y = _neighbors(torch.addcmul(torch.addcmul(d, e, x), f, y), y, height)
    top, bottom = top.mul_(width), bottom.mul_(width)
    planes = images.flatten(2).float()

    def read(row: Tensor, column: Tensor) -> Tensor:
        index = (row + column).long().flatten(1)[:, None].expand(-1, 3, -1)
        return planes.gather(2, index).view(images.shape)

    upper = read(top, left).lerp_(read(top, right), rightward)
    lower = read(bottom, left).lerp_(read(bottom, right), rightward)
    levels = upper.lerp_(lower, downward).add_(2e-4)  # PIL truncates; float32's rounding must not cost a level
    return levels.mul_((inside_x & inside_y)[:, None]).byte()


def _neighbors(offset: Tensor, own: Tensor, length: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return the pixels before and after ``own + offset``, where between them it is, and whether it is inside the image.

    Offsets are small, so float32 is exact enough for them, as it would not be for positions.
    """
    whole = offset.floor()
    before = own + whole
    nearest = own + (offset + 0.5).floor_()
    inside = nearest == nearest.clamp(0, length - 1)
    between = (offset - whole)[:, None]
    return before.clamp(0, length - 1), (before + 1).clamp_(0, length - 1), between, inside
