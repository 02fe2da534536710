"""Read images of any kind as 8-bit RGB pixels, and define what counts as several images."""

from __future__ import annotations

import io
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import UInt8
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, IterableDataset

from tpt_lib.types import ImageLike, Images

if TYPE_CHECKING:
    import PIL.Image

__all__ = ["ImageError", "read_image"]


class ImageError(ValueError):
    """Raised for an image that cannot be used: a corrupt file, no pixels, NaN pixels, or a wrong number of channels."""


class MissingImageError(ImageError, FileNotFoundError):
    """Raised for a missing file. Unlike other image errors, it is also a ``FileNotFoundError``."""


class UnreadableImageError(ImageError, OSError):
    """Raised if the system failed to read a file, or had no memory for it. The failure may be temporary, and the image good."""


def are_several(images: Images) -> bool:
    """Return whether these are several images. Every function that takes images follows this rule.

    Args:
        images: one image, anything ``read_image`` takes; or several.

    Returns:
        True for a list, a tuple, a dataset and a tensor ``(B, 3, H, W)``, also if it is empty or holds one image.

    Raises:
        TypeError: for a ``DataLoader`` and an ``IterableDataset``.
    """
    if isinstance(images, DataLoader):
        raise TypeError(
            "a DataLoader is not a list of images: it yields batches that something else has prepared. Pass its dataset; or, "
            "for a loader of views, call tpt_predict(model, prompts, encode_views(model, views)) for each of its batches"
        )
    if isinstance(images, IterableDataset):
        raise TypeError("an IterableDataset has no length and no order; pass a list of its images, list(dataset)")
    return isinstance(images, list | tuple | Dataset) or (isinstance(images, Tensor) and images.ndim == 4)


def count_images(images: Images) -> int:
    """Return the number of images, 1 for a single image."""
    return len(images) if are_several(images) else 1  # type: ignore[arg-type]


def image_at(images: Images, index: int) -> ImageLike:
    """Return one of several images. If an item is a tuple, such as ``(image, label)``, that is its first element."""
    item = images[index]  # type: ignore[index]
    return item[0] if isinstance(item, tuple) else item


def each_image(images: Images) -> Iterator[ImageLike]:
    """Yield each image; a single image is yielded once. Items of a dataset are read lazily."""
    several: Images = images if are_several(images) else [images]  # type: ignore[list-item]
    return (image_at(several, i) for i in range(count_images(several)))


def read_image(image: ImageLike) -> UInt8[Tensor, "3 h w"]:
    """Read an image of any kind as 8-bit RGB pixels. All views are made from these.

    Convention: EXIF orientation is applied. Transparency is dropped, as PIL's ``convert("RGB")`` does. 16-bit gray is scaled to
    8 bits. PIL's modes ``I`` and ``F`` have no scale of their own, so their values must be in 0..255. Floats are rounded to
    8 bits.

    Args:
        image: a path; a PIL image of any mode; a tensor ``(3, H, W)``; or an array ``(H, W)``, ``(H, W, 3)`` or ``(H, W, 4)``.
            Tensors and arrays are uint8, or float in [0, 1].

    Returns:
        Uint8 pixels ``(3, H, W)`` on the CPU, channels last in memory.

    Raises:
        ImageError: if the image cannot be used. For a missing file, the error is also a ``FileNotFoundError``; if the system
            failed to read it, it is also an ``OSError``. A file with more pixels than ``PIL.Image.MAX_IMAGE_PIXELS`` is refused
            before memory is allocated for it.
        TypeError: if it is not an image, or of another dtype.

    >>> read_image(torch.rand(3, 40, 60)).dtype
    torch.uint8
    """
    import numpy as np
    import PIL.Image

    if isinstance(image, str | os.PathLike):
        pixels = _from_file(image)
    elif isinstance(image, PIL.Image.Image):
        pixels = _from_pil(image, "the image")
    elif isinstance(image, np.ndarray):
        pixels = _eight_bits(_channels_first(image))
    elif isinstance(image, Tensor):
        if image.ndim != 3 or image.shape[0] != 3:
            raise ImageError(
                f"a tensor image must have shape (3, H, W), but got {tuple(image.shape)}; one image per call, color "
                "channels first (gray.expand(3, -1, -1) makes three of one)"
            )
        pixels = _eight_bits(image.cpu())
    else:
        raise TypeError(f"an image must be a PIL image, a tensor, an array or a path, but got {type(image).__name__}")
    if 0 in pixels.shape:
        raise ImageError(f"the image has no pixels: it is {pixels.shape[1]} high and {pixels.shape[2]} wide")
    return pixels.permute(1, 2, 0).contiguous().permute(2, 0, 1)


def in_unit_range(x: Tensor) -> bool:
    """Return whether all values are in [0, 1] up to rounding, and none is NaN."""
    low, high = x.aminmax()
    return bool(low >= -1e-4) and bool(high <= 1 + 1e-4)


def _from_file(path: str | os.PathLike[str]) -> Tensor:
    name = repr(os.fspath(path))
    if not os.path.exists(path):
        raise MissingImageError(f"there is no file {name}")
    if not os.path.isfile(path):  # a folder, or a pipe, from which reading may never end
        raise ImageError(f"{name} is not a file")
    return _decoded(path, name)


def read_encoded(data: bytes, name: str) -> UInt8[Tensor, "3 h w"]:
    """Read the bytes of an image file as ``read_image`` reads the file.

    Args:
        data: content of an image file.
        name: what errors call it.

    Returns:
        Uint8 pixels ``(3, H, W)``.

    Raises:
        ImageError: if the image cannot be used.
    """
    return _decoded(io.BytesIO(data), name)


def _decoded(source: str | os.PathLike[str] | io.BytesIO, name: str) -> Tensor:
    import PIL.Image

    try:
        image = PIL.Image.open(source)
    except Exception as error:  # decoders raise errors of any type on a broken file
        raise _kind_of(error)(f"{name} cannot be opened as an image: {error}") from error
    with image:
        limit = PIL.Image.MAX_IMAGE_PIXELS
        if limit is not None and image.width * image.height > limit:
            raise ImageError(
                f"{name} has {image.width} x {image.height} pixels, more than PIL.Image.MAX_IMAGE_PIXELS = {limit}; raise that "
                "if you trust the file"
            )
        return _from_pil(image, name)


def _kind_of(error: Exception) -> type[ImageError]:
    """Return the type to raise for an error. Those of the system have a number; those of decoders do not."""
    of_system = isinstance(error, MemoryError) or (isinstance(error, OSError) and error.errno is not None)
    return UnreadableImageError if of_system else ImageError


def _from_pil(image: PIL.Image.Image, name: str) -> Tensor:
    import numpy as np
    from PIL import ImageOps

    try:
        image = ImageOps.exif_transpose(image)
        if image.mode == "P" and "transparency" in image.info:
            image = image.convert("RGBA")  # PIL converts directly to RGB with the same result, but warns
        if not image.mode.startswith(("I", "F")):
            return torch.from_numpy(np.array(image.convert("RGB"))).permute(2, 0, 1)
        levels = torch.from_numpy(np.array(image).astype(np.float64))
    except Exception as error:
        raise _kind_of(error)(f"{name} cannot be read as RGB pixels: {type(error).__name__}: {error}") from error
    if image.mode.startswith("I;16"):
        levels = levels / 257
    elif not in_unit_range(levels / 255):
        raise ImageError(
            f"{name} has PIL's mode {image.mode}, for which pixels must be in 0..255, but they are in "
            f"{levels.min():g}..{levels.max():g}; scale them first"
        )
    return levels.round().byte().expand(3, -1, -1)


def _channels_first(array: Any) -> Tensor:
    import numpy as np

    if array.dtype != np.uint8 and array.dtype.kind != "f":
        raise TypeError(f"an array image must be uint8, or float in [0, 1], but got {array.dtype}")
    if array.ndim not in (2, 3) or (array.ndim == 3 and array.shape[2] not in (3, 4)):
        raise ImageError(
            f"an array image must have shape (H, W), (H, W, 3) or (H, W, 4), but got {array.shape}; color channels last"
        )
    if array.ndim == 2:
        array = array[..., None]
    native = np.array(array[..., :3], dtype=array.dtype.newbyteorder("="))
    return torch.from_numpy(native).permute(2, 0, 1).expand(3, -1, -1)


def _eight_bits(pixels: Tensor) -> Tensor:
    if pixels.dtype == torch.uint8:
        return pixels
    if not pixels.is_floating_point():
        raise TypeError(f"a tensor image must be uint8, or float in [0, 1], but got {pixels.dtype}")
    if pixels.numel() and not in_unit_range(pixels):
        low, high = (f"{v:g}" for v in pixels.aminmax())
        raise ImageError(
            f"a float image must have values in [0, 1], but they are in {low}..{high}; divide levels of 0..255 by 255, "
            "and give pixels that are not normalized"
        )
    return (pixels.float() * 255).round().byte()
