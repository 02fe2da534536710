"""Find the words whose embeddings are nearest to a context, as CoOp reads its learned contexts."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from tpt_lib.models.protocol import ClipLike
from tpt_lib.tiny.model import known, strange_words

MOST = 8000  # words of CLIP's vocabulary, which lists the most frequent first


@dataclass(frozen=True)
class Vocabulary:
    """Words that are a single token of a model, with their ids ``(V,)``."""

    words: tuple[str, ...]
    ids: Int[Tensor, " v"]


@dataclass(frozen=True)
class NamedModel:
    """A model that the owner of the server named, what follows ``model = `` in Python, and its words."""

    model: ClipLike
    code: str
    vocabulary: Vocabulary


def named_model(model: ClipLike, code: str) -> NamedModel:
    """Return a model with its words, which are read once."""
    return NamedModel(model, code, read_vocabulary(model))


def read_vocabulary(model: ClipLike) -> Vocabulary:
    """Return the frequent words that are one token of a model. For the embedded model, return those it was trained on."""
    return single_tokens(model, _tiny_words() if getattr(model, "name", "") == "tiny" else _clip_words())


def single_tokens(model: ClipLike, words: Iterable[str]) -> Vocabulary:
    """Return the words that are one token of a model.

    A word is one token if its ids are those of the empty text with one id put in, at the start or after it.
    """
    words = list(words)
    empty, ids = model.tokenize([""])[0].cpu(), model.tokenize(words).cpu()
    for start in (1, 0):
        rest = torch.cat([ids[:, :start], ids[:, start + 1 :]], dim=1)
        single = (rest == empty[:-1]).all(dim=1) & (ids != empty).any(dim=1)
        if single.any():
            break
    return Vocabulary(tuple(words[i] for i in single.nonzero()[:, 0].tolist()), ids[single, start])


def nearest_words(
    model: ClipLike, vocabulary: Vocabulary, context: Float[Tensor, "l d"], *, top: int = 3
) -> list[list[tuple[str, float]]]:
    """Return for each token of a context the nearest words, each with its Euclidean distance, the nearest first."""
    if not vocabulary.words:
        return [[] for _ in context]
    embedded = model.embed_tokens(vocabulary.ids[None])[0].float()
    distances, at = _distances(context.float(), embedded).topk(min(top, len(embedded)), largest=False)
    rows = zip(at.tolist(), distances.tolist(), strict=True)
    return [[(vocabulary.words[i], d) for i, d in zip(*row, strict=True)] for row in rows]


def _distances(context: Tensor, embedded: Tensor) -> Tensor:
    return torch.cdist(
        context, embedded, compute_mode="donot_use_mm_for_euclid_dist"
    )  # else a word is not at 0 of itself


def _tiny_words() -> list[str]:
    return sorted(word for word in {*known()["words"], *known()["names"]} if not strange_words(word))


def _clip_words() -> list[str]:
    from open_clip import SimpleTokenizer

    words = [token.removesuffix("</w>") for token in SimpleTokenizer().encoder if token.endswith("</w>")]
    return [word for word in words if re.fullmatch("[a-z]{2,}|a", word)][:MOST]
