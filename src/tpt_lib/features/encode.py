"""Views and images to normalized image features."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from tpt_lib.models.protocol import ClipLike
from tpt_lib.views.preprocessing import preprocess
from tpt_lib.views.reading import listed

__all__ = ["encode_images", "encode_views"]


def encode_views(model: ClipLike, views: Float[Tensor, "n 3 h w"], *, chunk: int | None = None) -> Float[Tensor, "n e"]:
    """L2-normalised float32 image features of a batch of preprocessed views, without gradient.

    Args:
        model: the model.
        views: preprocessed images ``(N, 3, H, W)`` at the size of ``model.image_spec``, on the model's device.
        chunk: how many views are encoded at once; by default 64, on a CPU 8 of 224 pixels, which suits its caches, and more
            of smaller ones.

    Returns:
        Features ``(N, E)`` of unit length.

    >>> encode_views(model, torch.rand(5, 3, 224, 224)).shape
    torch.Size([5, 256])
    """
    _check_views(model, views)
    if chunk is None:
        small = 8 * 224**2 // (views.shape[-2] * views.shape[-1])
        chunk = min(64, max(8, small)) if views.device.type == "cpu" else 64
    if chunk < 1:
        raise ValueError(f"encode_views: chunk must be at least 1, but got {chunk}")
    with torch.inference_mode(False), torch.no_grad():
        return torch.cat([F.normalize(model.encode_image(part).float(), dim=-1) for part in torch.split(views, chunk)])


def _check_views(model: ClipLike, views: Tensor) -> None:
    height, width = model.image_spec.size
    if views.ndim != 4 or tuple(views.shape[1:]) != (3, height, width):
        raise ValueError(
            f"encode_views: this model wants views of shape (N, 3, {height}, {width}), but got {tuple(views.shape)}; "
            "preprocess(image, model.image_spec) makes one from an image, [None] adds the batch dimension"
        )
    if not views.is_floating_point():
        raise TypeError(
            f"encode_views: views must be normalised floats, but got {views.dtype}; "
            "preprocess(image, model.image_spec) makes them from raw pixels"
        )
    scale = model.logit_scale
    if isinstance(scale, Tensor) and scale.device != views.device:
        raise ValueError(
            f"encode_views: the model is on {scale.device} and the views are on {views.device}; "
            f"move the views with views.to({str(scale.device)!r}) (the library never moves a model)"
        )


def encode_images(model: ClipLike, images: Any, *, chunk: int = 64) -> Float[Tensor, "n e"]:
    """L2-normalised float32 features of images as they are, without random views.

    Args:
        model: the model.
        images: one image or a list of them, anything ``read_image`` takes; a tensor ``(N, 3, H, W)``; or features ``(N, E)``,
            which are normalised and otherwise passed through.
        chunk: how many images are in memory at once.

    Returns:
        Features ``(N, E)``, on the model's device.

    >>> encode_images(model, [torch.rand(3, 40, 60), torch.zeros(3, 50, 30)]).shape
    torch.Size([2, 256])
    """
    device = model.embed_tokens(model.tokenize([""])).device
    if isinstance(images, Tensor) and images.ndim == 2:
        if not images.is_floating_point() or not images.isfinite().all():
            raise ValueError(
                f"encode_images: features (N, E) must be finite floats, but got {images.dtype}, or NaN in it"
            )
        return F.normalize(images.detach().to(device).float(), dim=-1)
    images = listed(images)
    if len(images) == 0:
        raise ValueError("encode_images: there are no images; at least one is needed")
    parts = (images[first : first + chunk] for first in range(0, len(images), chunk))
    plain = (torch.stack([preprocess(image, model.image_spec) for image in part]).to(device) for part in parts)
    return torch.cat([encode_views(model, part) for part in plain])
