"""The interface that a CLIP-like model must offer, and an optional one that makes it fast."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, SupportsIndex, get_args, runtime_checkable

from jaxtyping import Float, Int
from torch import Tensor

__all__ = ["CausalBlock", "CausalTower", "ClipLike", "ImageSpec"]

Interpolation = Literal["bicubic", "bilinear", "lanczos", "nearest"]

ResizeMode = Literal["shortest", "squash", "longest"]

OPENAI_MEAN = (0.48145466, 0.4578275, 0.40821073)

OPENAI_STD = (0.26862954, 0.26130258, 0.27577711)


@dataclass(frozen=True)
class ImageSpec:
    """The preprocessing a model expects of its images.

    Args:
        size: height and width in pixels.
        mean: subtracted from each channel of an image in [0, 1] (default: OpenAI's CLIP).
        std: divisor of each channel after that (default: OpenAI's CLIP).
        interpolation: ``"bicubic"`` (default), ``"bilinear"``, ``"lanczos"`` or ``"nearest"``; antialiased.
        resize_mode: ``"shortest"`` (default) resizes the short side and crops the center, as CLIP does. ``"squash"``
            ignores the aspect ratio, as SigLIP does. ``"longest"`` resizes the long side and pads.
        fill: gray level in 0..255 that ``"longest"`` pads with (default 0).

    Raises:
        ValueError: if a value is out of range or not one of those listed.

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
        if not isinstance(self.size, Sequence) or len(self.size) != 2 or not all(map(_is_positive_int, self.size)):
            raise ValueError(f"ImageSpec: size must be two positive ints (height, width), but got {self.size!r}")
        finite = all(map(math.isfinite, (*self.mean, *self.std)))
        if len(self.mean) != 3 or len(self.std) != 3 or not finite or min(self.std) <= 0:
            raise ValueError(
                f"ImageSpec: mean and std need three finite values each, std above 0, but got {self.mean!r} and {self.std!r}"
            )
        for name, value, known in (
            ("interpolation", self.interpolation, get_args(Interpolation)),
            ("resize_mode", self.resize_mode, get_args(ResizeMode)),
        ):
            if value not in known:
                raise ValueError(f"ImageSpec: {name} must be one of {', '.join(known)}, but got {value!r}")


def _is_positive_int(value: object) -> bool:
    return isinstance(value, SupportsIndex) and value.__index__() > 0


@runtime_checkable
class ClipLike(Protocol):
    """A model that the library can use. Implement these seven members to use an unusual checkpoint.

    Features are the model's own and are not normalized. ``encode_embeddings`` takes token *embeddings*, so that a learned
    context can replace words. It also takes the ids, because models pool and mask by them. All computation is in eval
    mode, whatever mode the model is in.
    """

    @property
    def image_spec(self) -> ImageSpec:
        """The preprocessing the model expects."""

    @property
    def logit_scale(self) -> Tensor | float:
        """The factor that multiplies cosine similarities, already exponentiated."""

    @property
    def logit_bias(self) -> Tensor | float:
        """The value added to the scaled similarities; 0 if the model has none."""

    def tokenize(self, texts: list[str]) -> Int[Tensor, "k t"]:
        """Return token ids ``(K, T)``, padded to the model's context length.

        Args:
            texts: K texts.

        Returns:
            Token ids ``(K, T)``.
        """

    def embed_tokens(self, ids: Int[Tensor, "k t"]) -> Float[Tensor, "k t d"]:
        """Return token embeddings ``(K, T, D)`` without positions.

        Args:
            ids: token ids ``(K, T)``.

        Returns:
            Token embeddings ``(K, T, D)``.
        """

    def encode_image(self, pixels: Float[Tensor, "n 3 h w"]) -> Float[Tensor, "n e"]:
        """Return features ``(N, E)`` of preprocessed images.

        Args:
            pixels: preprocessed images ``(N, 3, H, W)``.

        Returns:
            Features ``(N, E)`` as the model gives them, not normalized.
        """

    def encode_embeddings(self, embeddings: Float[Tensor, "k t d"], ids: Int[Tensor, "k t"]) -> Float[Tensor, "k e"]:
        """Run the text tower on token embeddings and return features ``(K, E)``.

        Args:
            embeddings: token embeddings ``(K, T, D)`` without positions.
            ids: token ids ``(K, T)``, which models pool and mask by.

        Returns:
            Features ``(K, E)`` as the model gives them, not normalized.
        """


def check_clip(caller: str, model: object, *members: str) -> None:
    """Refuse a model that lacks some members of ``ClipLike``, such as one that was not wrapped."""
    if missing := [member for member in members if getattr(model, member, None) is None]:
        raise TypeError(
            f"{caller}: model must be a ClipLike, but got {type(model).__name__}, which lacks {', '.join(missing)}; wrap a "
            "model of open_clip, transformers or OpenAI with tpt_lib.wrap(model), load one with load_open_clip, or "
            "implement these members of tpt_lib.ClipLike"
        )


@runtime_checkable
class CausalBlock(Protocol):
    """One pre-norm residual block of a causal text tower, split at the attention, where positions interact."""

    @property
    def heads(self) -> int:
        """The number of attention heads."""

    def qkv(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return queries, keys and values ``(…, D)`` of the normalized input.

        Args:
            x: input of the block ``(…, D)``.

        Returns:
            Three tensors ``(…, D)``.
        """

    def merge(self, x: Tensor, attended: Tensor) -> Tensor:
        """Return the block's output from its input and the attended values, both ``(…, D)``.

        Args:
            x: input of the block ``(…, D)``.
            attended: output of the attention ``(…, D)``, before its projection.

        Returns:
            The input of the next block ``(…, D)``.
        """


@runtime_checkable
class CausalTower(Protocol):
    """A causal text tower, block by block: the optional second Protocol, which makes a model fast.

    A model offers it with a method ``causal_tower() -> CausalTower | str``. A string gives the reason why it is not available.

    A second optional method lets text features be cached: ``text_parts() -> list`` returns the modules, hooks and
    weights that text features depend on. A tuple in that list is read as settings, and compared by value.
    """

    @property
    def positions(self) -> Tensor:
        """The positional embedding ``(T, D)``, in any dtype."""

    @property
    def blocks(self) -> Sequence[CausalBlock]:
        """The blocks, first to last."""

    def embed(self, ids: Tensor) -> Tensor:
        """Return token embeddings without positions, in the dtype the blocks compute in.

        Args:
            ids: token ids ``(K, T)``.

        Returns:
            Embeddings ``(K, T, D)``.
        """

    def pool(self, ids: Tensor) -> Tensor:
        """Return the position ``(K,)`` whose state becomes the feature.

        Args:
            ids: token ids ``(K, T)``.

        Returns:
            Positions ``(K,)``.
        """

    def finish(self, x: Tensor) -> Tensor:
        """Return features ``(…, E)`` from the last block's output ``(…, D)`` at the pooled position.

        Args:
            x: output of the last block ``(…, D)``.

        Returns:
            Features ``(…, E)``, not normalized.
        """
