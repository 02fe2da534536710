"""What the library asks of a CLIP-like model, and the features and logits it makes of one."""

from __future__ import annotations

import functools
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, get_args, runtime_checkable

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

__all__ = ["CausalBlock", "CausalTower", "ClipLike", "ImageSpec", "class_logits", "encode_views"]

Interpolation = Literal["bicubic", "bilinear", "lanczos", "nearest"]
ResizeMode = Literal["shortest", "squash", "longest"]
OPENAI_MEAN = (0.48145466, 0.4578275, 0.40821073)
OPENAI_STD = (0.26862954, 0.26130258, 0.27577711)


@dataclass(frozen=True)
class ImageSpec:
    """How a model wants its images: the few facts that its preprocessing consists of.

    Args:
        size: height and width in pixels.
        mean: what is subtracted from each channel of an image in [0, 1].
        std: what each channel is then divided by.
        interpolation: ``"bicubic"``, ``"bilinear"``, ``"lanczos"`` or ``"nearest"``; antialiased.
        resize_mode: ``"shortest"`` fits the short side and crops the centre (CLIP), ``"squash"`` ignores the aspect
            ratio (SigLIP), ``"longest"`` fits the long side and pads.
        fill: the grey level in 0..255 that ``"longest"`` pads with.

    >>> ImageSpec((224, 224)).resize_mode
    'shortest'
    """

    size: tuple[int, int]
    mean: tuple[float, float, float] = OPENAI_MEAN
    std: tuple[float, float, float] = OPENAI_STD
    interpolation: Interpolation = "bicubic"
    resize_mode: ResizeMode = "shortest"
    fill: int = 0

    def __post_init__(self) -> None:
        if len(self.size) != 2 or min(self.size) < 1:
            raise ValueError(f"ImageSpec: size must be two positive ints (height, width), but got {self.size!r}")
        if len(self.mean) != 3 or len(self.std) != 3 or min(self.std) <= 0:
            raise ValueError(
                f"ImageSpec: mean and std need three values each, std above 0, but got {self.mean!r} and {self.std!r}"
            )
        for name, value, known in (
            ("interpolation", self.interpolation, get_args(Interpolation)),
            ("resize_mode", self.resize_mode, get_args(ResizeMode)),
        ):
            if value not in known:
                raise ValueError(f"ImageSpec: {name} must be one of {', '.join(known)}, but got {value!r}")


@runtime_checkable
class ClipLike(Protocol):
    """All that the library needs of a model. Write these members to bring an unusual checkpoint.

    Features are the model's own, not normalised. ``encode_text`` takes token *embeddings*, so that a learned context
    can stand where words stood; the ids come along because models pool and mask by them. Computation is in eval mode.
    """

    @property
    def image_spec(self) -> ImageSpec:
        """How the model wants its images."""

    @property
    def logit_scale(self) -> Tensor | float:
        """The factor on cosine similarities, already exponentiated."""

    @property
    def logit_bias(self) -> Tensor | float:
        """What is added to the scaled similarities; 0 where there is none."""

    def tokenize(self, texts: list[str]) -> Int[Tensor, "k t"]:
        """Token ids, padded to the model's context length."""

    def embed_tokens(self, ids: Int[Tensor, "k t"]) -> Float[Tensor, "k t d"]:
        """Token embeddings, without positions."""

    def encode_image(self, pixels: Float[Tensor, "n 3 h w"]) -> Float[Tensor, "n e"]:
        """Features of preprocessed images."""

    def encode_text(self, embeddings: Float[Tensor, "k t d"], ids: Int[Tensor, "k t"]) -> Float[Tensor, "k e"]:
        """The text tower from token embeddings on."""


@runtime_checkable
class CausalBlock(Protocol):
    """One pre-norm residual block of a causal text tower, cut where positions meet: at the attention."""

    @property
    def heads(self) -> int:
        """How many heads its attention has."""

    def qkv(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values ``(…, D)`` of the normed input."""

    def merge(self, x: Tensor, attended: Tensor) -> Tensor:
        """The block's output from its input and the attended values, both ``(…, D)``."""


@runtime_checkable
class CausalTower(Protocol):
    """A causal text tower laid open block by block: the optional second Protocol, which makes a model fast.

    A model offers it as a method ``causal_tower() -> CausalTower | str``, a string being the reason why there is none; and
    with ``text_parts() -> list``, the weights, modules and hooks that text features depend on, it lets those be kept.
    """

    @property
    def positions(self) -> Tensor:
        """The positional embedding ``(T, D)``, in any dtype."""

    @property
    def blocks(self) -> Sequence[CausalBlock]:
        """The blocks, first to last."""

    def embed(self, ids: Tensor) -> Tensor:
        """Token embeddings, without positions, in the dtype the blocks compute in."""

    def pool(self, ids: Tensor) -> Tensor:
        """The position ``(K,)`` whose state becomes the feature."""

    def finish(self, x: Tensor) -> Tensor:
        """Features ``(…, E)`` from the last block's output ``(…, D)`` at the pooled position."""


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
    survive_forks()
    if chunk is None:
        small = 8 * 224**2 // (views.shape[-2] * views.shape[-1])
        chunk = min(64, max(8, small)) if views.device.type == "cpu" else 64
    if chunk < 1:
        raise ValueError(f"encode_views: chunk must be at least 1, but got {chunk}")
    with torch.inference_mode(False), torch.no_grad():
        return torch.cat([F.normalize(model.encode_image(part).float(), dim=-1) for part in torch.split(views, chunk)])


def class_logits(
    model: ClipLike, image_features: Float[Tensor, "*b n e"], text_features: Float[Tensor, "*b k e"]
) -> Float[Tensor, "*b n k"]:
    r"""Logits :math:`\tau\,\mathrm{sim}(\mathbf t_k, \mathbf v_n) + b` (section 3.1) of normalised features.

    Args:
        model: gives the scale :math:`\tau` and the bias :math:`b` (0 for CLIP).
        image_features: ``(…, N, E)``, as ``encode_views`` returns them.
        text_features: ``(…, K, E)``, as ``encode_prompts`` returns them.

    >>> class_logits(model, torch.eye(256)[:2], torch.eye(256)[:3]).shape
    torch.Size([2, 3])
    """
    for name, features in (("image_features", image_features), ("text_features", text_features)):
        if not features.is_floating_point() or features.ndim < 2:
            raise TypeError(
                f"class_logits: {name} must be a float tensor of at least two dimensions, but got {features.dtype} of "
                f"shape {tuple(features.shape)}; encode_views and encode_prompts return what is wanted"
            )
    if image_features.shape[-1] != text_features.shape[-1]:
        raise ValueError(
            f"class_logits: image features have width {image_features.shape[-1]} and text features "
            f"{text_features.shape[-1]}; both must come from the same model"
        )
    with torch.autocast(image_features.device.type, enabled=False):
        similarity = image_features.float() @ text_features.float().mT
        return model.logit_scale * similarity + model.logit_bias


@functools.cache
def survive_forks() -> None:
    """From here on a forked child computes in one thread: OpenMP's others do not live on in it, and torch would wait."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=functools.partial(torch.set_num_threads, 1))


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
