"""Put learned tokens at the free positions of prompts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from tpt_lib.prompts.class_prompts import ClassPrompts
from tpt_lib.prompts.templates import CONTEXT, NAME


@dataclass(frozen=True)
class Place:
    """Where some of the learned tokens go: learned token ``source[i]`` replaces token ``at[i]``."""

    at: Tensor
    source: Tensor


def free_places(prompts: ClassPrompts, classes: Tensor, positions: Tensor) -> list[Place]:
    """Return where the context goes, then the free names if there are any, among tokens of given classes and positions."""
    device = prompts.context.device
    rows, row = classes.unique(return_inverse=True)  # a few of many classes, as a rule
    found = []
    for role, values in ((CONTEXT, prompts.context), (NAME, prompts.name_tokens)):
        if values is None:
            continue
        free = prompts.roles[rows] == role
        slots = (free.cumsum(dim=1) - 1)[row, positions]
        at = free[row, positions].nonzero().squeeze(1)
        own = values.shape[-2] * classes[at] if values.ndim == 3 else 0
        found.append(Place(at.to(device), (own + slots[at]).to(device)))
    return found


def put_tokens(x: Tensor, places: Sequence[Place], context: Tensor, name_tokens: Tensor | None) -> Tensor:
    """Return token embeddings ``(n, D)`` with the free ones replaced: ``(B, n, D)``; ``context`` is ``(B, 1 or K, L, D)``."""
    x = x.expand(len(context), *x.shape)
    for place, values in zip(places, (context, name_tokens), strict=False):
        if values is not None:
            x = x.index_copy(1, place.at, values.flatten(1, 2).index_select(1, place.source).to(x.dtype))
    return x
