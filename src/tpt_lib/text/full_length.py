"""The plain text engine: the model's own forward on full-length prompts."""

from __future__ import annotations

import torch
from einops import rearrange, repeat
from torch import Tensor

from tpt_lib.models.protocol import ClipLike
from tpt_lib.prompts.class_prompts import ClassPrompts
from tpt_lib.text.place_tokens import free_places, put_tokens


def full_length_features(
    model: ClipLike, prompts: ClassPrompts, context: Tensor, name_tokens: Tensor | None, part: Tensor
) -> Tensor:
    """Return features ``(B, k, E)`` of some classes, not normalized; ``context`` is ``(B, 1 or K, L, D)``."""
    ids = prompts.ids[part]
    rows, columns = torch.ones_like(ids).nonzero(as_tuple=True)
    places = free_places(prompts, part[rows], columns)
    x = put_tokens(model.embed_tokens(ids).flatten(0, 1), places, context, name_tokens)
    x = rearrange(x, "b (k t) d -> (b k) t d", k=len(ids))
    features = model.encode_embeddings(x, repeat(ids.to(x.device), "k t -> (b k) t", b=len(context)))
    return rearrange(features, "(b k) e -> b k e", k=len(ids))
