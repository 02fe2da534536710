"""The adapter that all others build on: run an unchanged torch module on token embeddings instead of tokens."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from tpt_lib.models.identity import identify, module_parts
from tpt_lib.models.kept_parts import KeptParts
from tpt_lib.models.protocol import CausalTower, ImageSpec
from tpt_lib.models.structural_copy import mirror

Tokenizer = Callable[[list[str]], Tensor]

TokenizerLike = Tokenizer | Callable[..., Mapping[str, object]]  # the second: transformers' tokenizers and processors

IMAGE_PARTS = ("visual", "vision", "image_")  # a projection may be outside of its tower, as in transformers


@dataclass(frozen=True, eq=False)
class ModuleClip:
    """A torch module as a ``ClipLike``.

    The functions find the parts of a library's models. They are module-level functions, so that a wrapped model can be copied
    and pickled if its module and its tokenizer can.

    Convention:
        Two wrapped models are equal if they wrap the same module object. A copy made by ``copy.deepcopy`` or ``pickle``
        has a module of its own, so it is another model: prompts made for one are refused by the other.

    Args:
        module: the model, shared and never changed.
        tokenizer: turns a list of texts into padded ids ``(K, T)``.
        image_spec: the preprocessing the model expects.
        image_tower: function from a module to its image tower.
        token_embedding: function from a module to its token embedding.
        image_features: function from a module and pixels to unnormalized features.
        text_features: function from a module and token ids to unnormalized features.
        tower: function from a module to its causal text tower, or to the reason why there is none.
        name: shown by ``repr`` and kept in run files (default: the module's class).
    """

    module: nn.Module
    tokenizer: Tokenizer
    image_spec: ImageSpec
    image_tower: Callable[[nn.Module], nn.Module]
    token_embedding: Callable[[nn.Module], nn.Module]
    image_features: Callable[[nn.Module, Tensor], Tensor]
    text_features: Callable[[nn.Module, Tensor], Tensor]
    tower: Callable[[nn.Module], CausalTower | str]
    name: str = ""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ModuleClip) and self.module is other.module

    def __hash__(self) -> int:
        return id(self.module)

    def __repr__(self) -> str:
        return f"<{self.name or type(self.module).__name__} as ClipLike, images {self.image_spec.size}>"

    @property
    def logit_scale(self) -> Tensor:
        """The factor that multiplies cosine similarities, already exponentiated."""
        scale: Tensor = self.module.logit_scale  # type: ignore[assignment]
        return scale.detach().float().exp().reshape(())

    @property
    def logit_bias(self) -> Tensor | float:
        """The value added to the scaled similarities; 0 if the module has none."""
        bias = getattr(self.module, "logit_bias", None)
        return 0.0 if bias is None else bias.detach().float().reshape(())

    def tokenize(self, texts: list[str]) -> Int[Tensor, "k t"]:
        """Return token ids ``(K, T)``, padded to the model's context length.

        Args:
            texts: K texts.

        Returns:
            Token ids ``(K, T)``.
        """
        return self.tokenizer(texts)

    def embed_tokens(self, ids: Int[Tensor, "k t"]) -> Float[Tensor, "k t d"]:
        """Return token embeddings ``(K, T, D)`` without positions.

        Args:
            ids: token ids ``(K, T)``.

        Returns:
            Token embeddings ``(K, T, D)``.
        """
        embedding = self.token_embedding(self.module)
        with torch.no_grad():
            return embedding(ids.to(weight_of(embedding).device))

    def encode_image(self, pixels: Float[Tensor, "n 3 h w"]) -> Float[Tensor, "n e"]:
        """Return unnormalized features ``(N, E)`` of preprocessed images.

        Args:
            pixels: preprocessed images ``(N, 3, H, W)``.

        Returns:
            Features ``(N, E)``.
        """
        module, tower = self.module, self.image_tower(self.module)
        if any(part.training for part in tower.modules()):  # otherwise use it as it is: a compiled tower stays compiled
            module = mirror(module, {})
        return self.image_features(module, pixels.to(weight_of(tower).dtype))

    def encode_embeddings(self, embeddings: Float[Tensor, "k t d"], ids: Int[Tensor, "k t"]) -> Float[Tensor, "k e"]:
        """Run the text tower on token embeddings and return unnormalized features ``(K, E)``.

        Args:
            embeddings: token embeddings ``(K, T, D)`` without positions.
            ids: token ids ``(K, T)``, which models pool and mask by.

        Returns:
            Features ``(K, E)``.
        """
        embedding, images = self.token_embedding(self.module), self.image_tower(self.module)
        given = _Given(embeddings.to(weight_of(embedding).dtype))
        module = mirror(self.module, {embedding: given, images: images})
        return self.text_features(module, ids.to(embeddings.device))

    def text_parts(self) -> list[object]:
        """Return what text features depend on: modules, settings, hooks and weights outside the image tower.

        Returns:
            The parts. Features computed before one of them changed are out of date.
        """
        return self._text.read(self._text_modules)

    def _text_modules(self) -> list[nn.Module]:
        images = self._image_modules()
        return [part for part in self.module.modules() if id(part) not in images]

    @cached_property
    def _text(self) -> KeptParts:
        return KeptParts()

    def image_parts(self) -> list[object]:
        """Return what image features depend on: modules, settings, hooks and weights of the image tower and its projection.

        Returns:
            The parts. Features computed before one of them changed are out of date.
        """
        return module_parts(self._image_modules().values())

    def _image_modules(self) -> dict[int, nn.Module]:
        named = [part for name, part in self.module.named_children() if name.startswith(IMAGE_PARTS)]
        return {id(part): part for tower in (self.image_tower(self.module), *named) for part in tower.modules()}

    def describe(self) -> str:
        """Return a text that identifies this model by its content: its name, weights and settings.

        Returns:
            The text, equal for models of equal content.
        """
        return str(identify(self))

    def causal_tower(self) -> CausalTower | str:
        """Return the text tower block by block, or the reason why the model does not offer it.

        Returns:
            The tower, or the reason as a text.
        """
        images = self.image_tower(self.module)
        return self.tower(mirror(self.module, {images: images}))


class _Given(nn.Module):
    """A token embedding that returns the embeddings it was made with."""

    def __init__(self, embeddings: Tensor) -> None:
        super().__init__()
        self.embeddings = embeddings

    def forward(self, _ids: Tensor) -> Tensor:
        return self.embeddings


def weight_of(module: nn.Module) -> Tensor:
    """Return a weight whose dtype and device are those the module expects of its input."""
    layers = [m.weight for m in module.modules() if isinstance(m, (nn.Embedding, nn.Linear, nn.Conv2d))]
    return layers[0] if layers else next(module.parameters())


@dataclass(frozen=True)
class PaddedTokenizer:
    """A transformers tokenizer as a function from texts to ids ``(K, T)``.

    Args:
        tokenizer: the transformers tokenizer.
        context_length: the length T that texts are padded or cut to.
    """

    tokenizer: Callable[..., Mapping[str, Any]]
    context_length: int

    def __call__(self, texts: list[str]) -> Tensor:
        """Return token ids ``(K, T)``."""
        length = {"padding": "max_length", "max_length": self.context_length, "truncation": True}
        return self.tokenizer(texts, **length, return_tensors="pt")["input_ids"]


def as_tokenizer(tokenizer: TokenizerLike | None, context_length: int, vocab_size: int) -> Tokenizer:
    """Return any of the usual tokenizers as a function from texts to ids ``(K, T)``.

    Args:
        tokenizer: a transformers tokenizer or processor, a function from texts to ids, or None for CLIP's own.
        context_length: the length that texts are padded to.
        vocab_size: the number of tokens the model knows. Decides whether CLIP's own tokenizer fits.

    Returns:
        The function. It can be pickled if the tokenizer can.

    Raises:
        ValueError: if there is no tokenizer and CLIP's own does not fit the model.
        TypeError: if the tokenizer cannot be called.
    """
    if tokenizer is None:
        own = _clip_tokenizer(context_length)
        if vocab_size != own.vocab_size:
            raise ValueError(
                f"wrap: this model has {vocab_size} tokens, CLIP's tokenizer {own.vocab_size}, so it needs its own; "
                "pass tokenizer=, for example open_clip.get_tokenizer(name) or AutoTokenizer.from_pretrained(path)"
            )
        return own
    inner: Any = getattr(tokenizer, "tokenizer", None) if hasattr(tokenizer, "image_processor") else tokenizer
    if hasattr(inner, "convert_tokens_to_ids"):  # a transformers tokenizer
        return PaddedTokenizer(inner, context_length)
    if not callable(inner):
        raise TypeError(
            f"wrap: tokenizer must be a function from a list of texts to padded ids, but got {type(tokenizer).__name__}"
        )
    return inner


@cache
def _clip_tokenizer(context_length: int) -> Any:
    """Return CLIP's own tokenizer, cached because reading its vocabulary takes longer than wrapping a model."""
    import open_clip

    return open_clip.SimpleTokenizer(context_length=context_length)
