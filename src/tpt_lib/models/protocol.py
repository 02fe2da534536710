"""What a CLIP-like model must offer, and what makes it fast."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, get_args, runtime_checkable

from jaxtyping import Float, Int
from torch import Tensor

__all__ = ["CausalBlock", "CausalTower", "ClipLike", "ImageSpec"]

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

    Features are the model's own, not normalised. ``encode_embeddings`` takes token *embeddings*, so that a learned context
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

    def encode_embeddings(self, embeddings: Float[Tensor, "k t d"], ids: Int[Tensor, "k t"]) -> Float[Tensor, "k e"]:
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
