"""Apply a model's own preprocessing to one image: view 0."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from tpt_lib.models.protocol import ImageSpec
from tpt_lib.types import ImageLike
from tpt_lib.views.devices import upload
from tpt_lib.views.reading import read_image

__all__ = ["preprocess"]

LONGEST = 16  # images longer than this many sides of the center crop are cut before they are resized


def preprocess(image: ImageLike, spec: ImageSpec) -> Float[Tensor, "3 h w"]:
    """Apply the model's own preprocessing to one image: resize, crop, scale to [0, 1], normalize.

    Args:
        image: anything ``read_image`` takes: a PIL image, a path, a tensor ``(3, H, W)``, an array ``(H, W, 3)``.
        spec: preprocessing of the model, ``model.image_spec``.

    Returns:
        A normalized float32 image ``(3, H, W)`` of size ``spec.size``, on the device of the image.

    Raises:
        ImageError: if the image cannot be used.

    >>> preprocess(torch.zeros(3, 40, 60, dtype=torch.uint8), ImageSpec((32, 32))).shape
    torch.Size([3, 32, 32])
    """
    device = image.device if isinstance(image, Tensor) else torch.device("cpu")
    return plain_view(read_image(image), spec, *mean_and_std(spec, device))


def mean_and_std(spec: ImageSpec, device: torch.device) -> tuple[Tensor, Tensor]:
    """Return the mean and standard deviation of each channel on a device, both ``(3, 1, 1)``."""
    mean, std = upload(torch.tensor([spec.mean, spec.std], dtype=torch.float32), device)[..., None, None]
    return mean, std


def plain_view(pixels: Tensor, spec: ImageSpec, mean: Tensor, std: Tensor) -> Tensor:
    """Preprocess 8-bit pixels on the CPU with PIL, as the published models are evaluated, and normalize on another device.

    Bytes are copied to the device, so the view is the same on every device.
    """
    return upload(_resized_levels(pixels, spec), mean.device).float().div_(255).sub_(mean).div_(std)


def _resized_levels(pixels: Tensor, spec: ImageSpec) -> Tensor:
    import PIL.Image
    from torchvision.transforms.v2 import InterpolationMode
    from torchvision.transforms.v2 import functional as tv

    image = PIL.Image.fromarray(_without_ends(pixels, spec).permute(1, 2, 0).contiguous().numpy())
    target = _resized(image.height, image.width, spec)
    image = tv.resize(image, list(target), interpolation=InterpolationMode(spec.interpolation))
    pad_h, pad_w = (max(0, want - got) for want, got in zip(spec.size, target, strict=True))
    if pad_h or pad_w:
        image = tv.pad(image, [pad_w // 2, pad_h // 2, pad_w - pad_w // 2, pad_h - pad_h // 2], fill=spec.fill)
    return tv.pil_to_tensor(tv.center_crop(image, list(spec.size)))


def _without_ends(pixels: Tensor, spec: ImageSpec) -> Tensor:
    """Return the part that the center crop can reach. Without this, 1x5000 would be resized to 224x1120000."""
    if spec.resize_mode != "shortest":
        return pixels
    keep = LONGEST * max(spec.size) // min(spec.size) * min(pixels.shape[1:])
    top, left = (max(0, (length - keep) // 2) for length in pixels.shape[1:])
    return pixels[:, top : pixels.shape[1] - top, left : pixels.shape[2] - left]


def _resized(height: int, width: int, spec: ImageSpec) -> tuple[int, int]:
    """Return the height and width to resize to before the crop."""
    want_h, want_w = spec.size
    if spec.resize_mode == "squash":
        return spec.size
    if spec.resize_mode == "shortest" and want_h == want_w:  # torchvision's rounding: the long side is cut down
        short, long = min(height, width), max(height, width)
        stretched = int(want_h * long / short)
        return (want_h, stretched) if height <= width else (stretched, want_h)
    choose = max if spec.resize_mode == "longest" else min
    ratio = choose(height / want_h, width / want_w)
    return max(1, round(height / ratio)), max(1, round(width / ratio))
