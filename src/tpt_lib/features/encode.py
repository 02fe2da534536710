"""Encode views and images as normalized image features."""

from __future__ import annotations

from itertools import islice

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from tpt_lib.features.check import check_rows, check_unit
from tpt_lib.models.protocol import ClipLike, check_clip
from tpt_lib.types import Images, kind_of
from tpt_lib.views.preprocessing import preprocess
from tpt_lib.views.reading import each_image

__all__ = ["encode_images", "encode_views"]


def encode_views(
    model: ClipLike, views: Float[Tensor, "*b n 3 h w"], *, chunk: int | None = None
) -> Float[Tensor, "*b n e"]:
    """Encode preprocessed views as L2-normalized float32 features, without gradient.

    Args:
        model: a CLIP-like model.
        views: preprocessed images ``(…, N, 3, H, W)`` of size ``model.image_spec.size``, on the model's device.
        chunk: number of views encoded together. Affects speed and memory, not results. The default is 64. On a CPU it is 8 for
            views of 224 pixels or more, to fit its caches, and up to 64 for smaller views.

    Returns:
        Features ``(…, N, E)`` of unit length, on the model's device.

    Raises:
        ValueError: if the views have a wrong shape or are on another device.
        TypeError: if the views, or what ``encode_image`` returns, are not floats with a row for each view.

    >>> encode_views(model, torch.rand(5, 3, 224, 224)).shape
    torch.Size([5, 256])
    """
    _check_views(model, views)
    chunk = default_chunk(views) if chunk is None else chunk
    if chunk < 1:
        raise ValueError(f"encode_views: chunk must be at least 1, but got {chunk}")
    parts = torch.split(views.flatten(0, -4), chunk)
    with torch.inference_mode(False), torch.no_grad():
        features = torch.cat([_encoded(model, part) for part in parts])
    return features.unflatten(0, views.shape[:-3])


def default_chunk(views: Float[Tensor, "*n 3 h w"]) -> int:
    """Return the number of views that ``encode_views`` encodes together by default."""
    small = 8 * 224**2 // (views.shape[-2] * views.shape[-1])
    return min(64, max(8, small)) if views.device.type == "cpu" else 64


def encode_images(model: ClipLike, images: Images, *, chunk: int = 64) -> Float[Tensor, "n e"]:
    """Encode images, without random views, as L2-normalized float32 features.

    Args:
        model: a CLIP-like model.
        images: one image, anything ``read_image`` takes; or several: a list, a tuple, a tensor ``(N, 3, H, W)``, or a dataset
            of images or of tuples that start with one.
        chunk: number of images in memory at the same time (default 64). Affects speed and memory, not results.

    Returns:
        Features ``(N, E)`` of unit length, on the model's device; for one image ``(1, E)``.

    Raises:
        ImageError: if an image cannot be used.
        ValueError: if there are no images, or they are features.
        TypeError: if ``images`` is a ``DataLoader``.

    >>> encode_images(model, [torch.rand(3, 40, 60), torch.zeros(3, 50, 30)]).shape
    torch.Size([2, 256])
    """
    if chunk < 1:
        raise ValueError(f"encode_images: chunk must be at least 1, but got {chunk}")
    if isinstance(images, Tensor) and images.ndim == 2:
        raise ValueError(
            f"encode_images: a tensor of shape {tuple(images.shape)} holds no images, which are (3, H, W) or (N, 3, H, W); "
            "features (N, E) are encoded already: pass them on as they are, normalized to unit length"
        )
    device, left, features = device_of(model), each_image(images), []
    while part := [preprocess(image, model.image_spec) for image in islice(left, chunk)]:
        features.append(encode_views(model, torch.stack(part).to(device)))
    if not features:
        raise ValueError("encode_images: there are no images; at least one is needed")
    return torch.cat(features)


def device_of(model: ClipLike) -> torch.device:
    """Return the device of a model: that of its token embeddings."""
    return model.embed_tokens(model.tokenize([""])).device


def as_features(caller: str, model: ClipLike, images: Images | Tensor) -> Float[Tensor, "n e"]:
    """Return features from images or features.

    Args:
        caller: name of the function that was given them, for error messages.
        model: a CLIP-like model.
        images: images, as ``encode_images`` takes them; or features ``(N, E)``, which are only normalized.

    Returns:
        Features ``(N, E)`` of unit length, on the model's device, without gradient.

    Raises:
        ValueError: if features are not finite floats, or zero.
    """
    if isinstance(images, Tensor) and images.ndim == 2:
        lengths = torch.linalg.vector_norm(images.float(), dim=-1)
        if not images.is_floating_point() or not ((lengths > 0) & lengths.isfinite()).all():
            raise ValueError(
                f"{caller}: features (N, E) must be finite floats and none of them zero, but got {images.dtype} of lengths "
                f"{lengths.min():.3g} to {lengths.max():.3g}"
            )
        return F.normalize(images.detach().to(device_of(model)).float(), dim=-1)
    features = encode_images(model, images)
    check_unit(caller, "encoded images", features)
    return features


def _encoded(model: ClipLike, views: Tensor) -> Tensor:
    found = check_rows("encode_views", "encode_image", model.encode_image(views), len(views))
    return F.normalize(found.float(), dim=-1)


def _check_views(model: ClipLike, views: Tensor) -> None:
    check_clip("encode_views", model, "image_spec", "encode_image")
    height, width = model.image_spec.size
    if not isinstance(views, Tensor):
        raise TypeError(f"encode_views: views must be a tensor (N, 3, {height}, {width}), but got {kind_of(views)}")
    if views.ndim < 4 or tuple(views.shape[-3:]) != (3, height, width):
        raise ValueError(
            f"encode_views: this model wants views of shape (N, 3, {height}, {width}), but got {tuple(views.shape)}; "
            "preprocess(image, model.image_spec) makes one from an image, [None] adds the batch dimension"
        )
    if views.numel() == 0:
        raise ValueError(
            f"encode_views: there are no views in a tensor of shape {tuple(views.shape)}; at least one is needed"
        )
    if not views.is_floating_point():
        raise TypeError(
            f"encode_views: views must be normalized floats, but got {views.dtype}; "
            "preprocess(image, model.image_spec) makes them from raw pixels"
        )
    scale = model.logit_scale
    if isinstance(scale, Tensor) and scale.device != views.device:
        raise ValueError(
            f"encode_views: the model is on {scale.device} and the views are on {views.device}; "
            f"move the views with views.to({str(scale.device)!r}) (the library never moves a model)"
        )
