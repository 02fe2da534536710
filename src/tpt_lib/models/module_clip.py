"""The one adapter behind all ready-made ones: a torch module run as it is, with embeddings put in for its tokens."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from tpt_lib.models.protocol import CausalTower, ImageSpec
from tpt_lib.models.structural_copy import mirror


class _Given(nn.Module):
    """Stands where the token embedding stood, and returns the embeddings it was given."""

    def __init__(self, embeddings: Tensor) -> None:
        super().__init__()
        self.embeddings = embeddings

    def forward(self, _ids: Tensor) -> Tensor:
        return self.embeddings


_PLAIN = (bool, int, float, str)


@dataclass(frozen=True, eq=False)
class ModuleClip:
    """A torch module as a ``ClipLike``: what the libraries do differently is in the functions it is given."""

    module: nn.Module
    tokenizer: Callable[[list[str]], Tensor]
    image_spec: ImageSpec
    image_tower: Callable[[Any], nn.Module]
    token_embedding: Callable[[Any], nn.Module]
    image_features: Callable[[Any, Tensor], Tensor]
    text_features: Callable[[Any, Tensor], Tensor]
    tower: Callable[[Any], CausalTower | str]
    name: str = ""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ModuleClip) and self.module is other.module

    def __hash__(self) -> int:
        return id(self.module)

    def __repr__(self) -> str:
        return f"<{self.name or type(self.module).__name__} as ClipLike, images {self.image_spec.size}>"

    @property
    def logit_scale(self) -> Tensor:
        scale: Tensor = self.module.logit_scale  # type: ignore[assignment]
        return scale.detach().float().exp().reshape(())

    @property
    def logit_bias(self) -> Tensor | float:
        bias = getattr(self.module, "logit_bias", None)
        return 0.0 if bias is None else bias.detach().float().reshape(())

    def tokenize(self, texts: list[str]) -> Int[Tensor, "k t"]:
        return self.tokenizer(texts)

    def embed_tokens(self, ids: Int[Tensor, "k t"]) -> Float[Tensor, "k t d"]:
        embedding = self.token_embedding(self.module)
        with torch.no_grad():
            return embedding(ids.to(weight_of(embedding).device))

    def encode_image(self, pixels: Float[Tensor, "n 3 h w"]) -> Float[Tensor, "n e"]:
        module, tower = self.module, self.image_tower(self.module)
        if any(part.training for part in tower.modules()):  # else as it is: a compiled tower stays compiled
            module = mirror(module, {})
        return self.image_features(module, pixels.to(weight_of(tower).dtype))

    def encode_embeddings(self, embeddings: Float[Tensor, "k t d"], ids: Int[Tensor, "k t"]) -> Float[Tensor, "k e"]:
        embedding, images = self.token_embedding(self.module), self.image_tower(self.module)
        given = _Given(embeddings.to(weight_of(embedding).dtype))
        module = mirror(self.module, {embedding: given, images: images})
        return self.text_features(module, ids.to(embeddings.device))

    def text_parts(self) -> list[Any]:
        """Modules, their settings and hooks, and weights, all but the image tower's."""
        images = {id(part) for part in self.image_tower(self.module).modules()}
        modules = [part for part in self.module.modules() if id(part) not in images]
        tables = [t for m in modules for t in (m._parameters, m._buffers, m._forward_hooks, m._forward_pre_hooks)]
        settings = [
            tuple((k, v) for k, v in vars(m).items() if isinstance(v, _PLAIN) and k != "training") for m in modules
        ]
        patched = [vars(m)["forward"] for m in modules if "forward" in vars(m)]
        return [*modules, *settings, *patched, *(part for t in tables for part in t.values() if part is not None)]

    def causal_tower(self) -> CausalTower | str:
        images = self.image_tower(self.module)
        return self.tower(mirror(self.module, {images: images}))


def weight_of(module: nn.Module) -> Tensor:
    """A weight whose dtype and device are those the module takes its input in."""
    layers = [m.weight for m in module.modules() if isinstance(m, (nn.Embedding, nn.Linear, nn.Conv2d))]
    return layers[0] if layers else next(module.parameters())


def as_tokenizer(tokenizer: Any, context_length: int, vocab_size: int) -> Callable[[list[str]], Tensor]:
    """Any of the usual tokenizers as a function from texts to ids ``(K, T)``; CLIP's own where none is given."""
    if tokenizer is None:
        import open_clip

        own = open_clip.SimpleTokenizer(context_length=context_length)
        if vocab_size != own.vocab_size:
            raise ValueError(
                f"wrap: this model has {vocab_size} tokens, CLIP's tokenizer {own.vocab_size}, so it needs its own; "
                "pass tokenizer=, for example open_clip.get_tokenizer(name) or AutoTokenizer.from_pretrained(path)"
            )
        return own
    inner: Any = tokenizer.tokenizer if hasattr(tokenizer, "image_processor") else tokenizer
    if hasattr(inner, "convert_tokens_to_ids"):  # a transformers tokenizer

        def tokenize(texts: list[str]) -> Tensor:
            batch = inner(texts, padding="max_length", max_length=context_length, truncation=True, return_tensors="pt")
            return batch["input_ids"]

        return tokenize
    if not callable(tokenizer):
        raise TypeError(
            f"wrap: tokenizer must be a function from a list of texts to padded ids, but got {type(tokenizer).__name__}"
        )
    return tokenizer
