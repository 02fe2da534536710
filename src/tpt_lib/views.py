"""From an image to what the model sees."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from jaxtyping import Float
from torch import Tensor

from tpt_lib.model import ImageSpec

if TYPE_CHECKING:
    from PIL.Image import Image

__all__ = ["preprocess"]


def preprocess(image: Image | Tensor, spec: ImageSpec) -> Float[Tensor, "3 h w"]:
    """The model's own preprocessing of one image: resize, crop, scale to [0, 1], normalise.

    Args:
        image: a PIL image, or a tensor ``(3, H, W)``: uint8, or float in [0, 1].
        spec: what the model wants, ``model.image_spec``.

    Returns:
        A normalised float32 image ``(3, H, W)`` at the size of ``spec``, on the image's device.

    >>> preprocess(torch.zeros(3, 40, 60, dtype=torch.uint8), ImageSpec((32, 32))).shape
    torch.Size([3, 32, 32])
    """
    from torchvision.transforms.v2 import InterpolationMode
    from torchvision.transforms.v2 import functional as tv

    image = _checked(image)
    height, width = image.shape[-2:] if isinstance(image, Tensor) else (image.height, image.width)
    target = _resized(height, width, spec)
    mode = InterpolationMode(spec.interpolation)
    image = tv.resize(image, list(target), interpolation=mode, antialias=True)
    pad_h, pad_w = (max(0, want - got) for want, got in zip(spec.size, target, strict=True))
    if pad_h or pad_w:
        image = tv.pad(image, [pad_w // 2, pad_h // 2, (pad_w + 1) // 2, (pad_h + 1) // 2], fill=spec.fill)
    pixels = tv.to_dtype(tv.to_image(tv.center_crop(image, list(spec.size))), torch.float32, scale=True)
    return tv.normalize(pixels.as_subclass(Tensor), list(spec.mean), list(spec.std))


def _checked(image: Image | Tensor) -> Image | Tensor:
    if not isinstance(image, Tensor):
        if not hasattr(image, "convert"):
            raise TypeError(
                f"preprocess: the image must be a PIL image or a tensor, but got {type(image).__name__}; "
                "open a file with PIL.Image.open(path)"
            )
        return image.convert("RGB")
    if image.ndim != 3 or image.shape[0] != 3:
        raise ValueError(
            f"preprocess: a tensor image must have shape (3, H, W), but got {tuple(image.shape)}; "
            "one image a call, colour channels first"
        )
    if not (image.is_floating_point() or image.dtype == torch.uint8):
        raise TypeError(f"preprocess: a tensor image must be uint8, or float in [0, 1], but got {image.dtype}")
    return image


def _resized(height: int, width: int, spec: ImageSpec) -> tuple[int, int]:
    """Height and width to resize to, before the crop."""
    want_h, want_w = spec.size
    if spec.resize_mode == "squash":
        return spec.size
    if spec.resize_mode == "shortest" and want_h == want_w:  # torchvision's rounding: the long side is cut down
        short, long = min(height, width), max(height, width)
        stretched = int(want_h * long / short)
        return (want_h, stretched) if height <= width else (stretched, want_h)
    choose = max if spec.resize_mode == "longest" else min
    ratio = choose(height / want_h, width / want_w)
    return round(height / ratio), round(width / ratio)
