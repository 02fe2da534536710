"""The packed text engine: what all classes share is computed once, and nothing that no feature depends on.

In a causal tower, positions before the class name do not see it: they are computed once, not K times. From the name to the
end of text, the tokens of all classes are packed without padding, in groups of one length, and attend to
[shared prefix; own]. Nothing after the end is computed, and the last block at the end of each text only.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from einops import rearrange
from torch import Tensor

from tpt_lib.models.protocol import CausalTower
from tpt_lib.prompts.class_prompts import ClassPrompts
from tpt_lib.text.place_tokens import put_tokens

FEW = 64  # tokens up to which one masked product is faster than the grouped attention


@dataclass(frozen=True)
class Packing:
    """The tokens of some classes: the shared prefix, then each class's own, in groups of one length."""

    prefix: int
    groups: list[tuple[int, int]]  # classes, and the length of each
    classes: Tensor
    positions: Tensor
    ends: Tensor  # where each class's text ends in the packing
    seen: Tensor | None  # for few tokens: which ones (columns) each one (row) attends to

    @classmethod
    def of(cls, prompts: ClassPrompts, part: Tensor) -> Packing:
        own = prompts.lengths[part] - prompts.prefix
        lengths, counts = own.unique_consecutive(return_counts=True)
        inside = torch.arange(prompts.ids.shape[1]) < prompts.lengths[part, None]
        inside[:, : prompts.prefix] = False
        rows, columns = inside.nonzero(as_tuple=True)
        owners = torch.cat([torch.full((prompts.prefix,), -1), rows])
        related = (owners == -1) | (owners == owners[:, None])
        return cls(
            prefix=prompts.prefix,
            groups=list(zip(counts.tolist(), lengths.tolist(), strict=True)),
            classes=torch.cat([part[:1].expand(prompts.prefix), part[rows]]),
            positions=torch.cat([torch.arange(prompts.prefix), columns]),
            ends=prompts.prefix + own.cumsum(0) - 1,
            seen=related.tril() if len(owners) <= FEW else None,
        )


def packed_features(
    tower: CausalTower, prompts: ClassPrompts, context: Tensor, name_tokens: Tensor | None, part: Tensor
) -> Tensor:
    """Return features ``(B, k, E)`` of some classes, not normalized; ``context`` is ``(B, 1 or K, L, D)``."""
    packing = Packing.of(prompts, part)
    device = context.device
    positions, ends = packing.positions.to(device), packing.ends.to(device)
    seen = None if packing.seen is None else packing.seen.to(device)
    x = tower.embed(prompts.ids[packing.classes, packing.positions].to(device))
    x = put_tokens(x, prompts, packing.classes, packing.positions, context, name_tokens)
    x = x + tower.positions[positions].to(x.dtype)
    for block in tower.blocks[:-1]:
        q, k, v = (rearrange(t, "b n (h d) -> b h n d", h=block.heads) for t in block.qkv(x))
        attended = _attention(q, k, v, packing) if seen is None else _masked(q, k, v, seen)
        x = block.merge(x, rearrange(attended, "b h n d -> b n (h d)"))
    last = tower.blocks[-1]
    q, k, v = (rearrange(t, "b n (h d) -> b h n d", h=last.heads) for t in last.qkv(x))
    q = q[:, :, ends]
    attended = _own_attention(q, k, v, packing, last=True) if seen is None else _masked(q, k, v, seen[ends])
    return tower.finish(last.merge(x[:, ends], rearrange(attended, "b h n d -> b n (h d)")))


def _masked(q: Tensor, k: Tensor, v: Tensor, seen: Tensor) -> Tensor:
    return (q * q.shape[-1] ** -0.5 @ k.mT).masked_fill(~seen, -torch.inf).softmax(dim=-1) @ v


def _attention(q: Tensor, k: Tensor, v: Tensor, packing: Packing) -> Tensor:
    """Attend within the prefix, and from each class's tokens to the prefix and its own."""
    shared, own = torch.split(q, [packing.prefix, q.shape[2] - packing.prefix], dim=2)
    shared_k, shared_v = k[:, :, : packing.prefix], v[:, :, : packing.prefix]
    return torch.cat([_shared_attention(shared, shared_k, shared_v), _own_attention(own, k, v, packing)], dim=2)


def _shared_attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Attend causally within the shared prefix."""
    return _no_later(q @ k.mT * q.shape[-1] ** -0.5).softmax(dim=-1) @ v


def _own_attention(q: Tensor, k: Tensor, v: Tensor, packing: Packing, *, last: bool = False) -> Tensor:
    """Attend causally from each class's tokens, or from its ``last`` one, to the prefix and the class's own tokens.

    All queries meet the prefix in one product, and each group its own keys in another; one softmax spans both.
    """
    sizes = [packing.prefix, *(count * length for count, length in packing.groups)]
    asked = [count if last else count * length for count, length in packing.groups]
    (prefix_k, *own_k), (prefix_v, *own_v) = torch.split(k, sizes, dim=2), torch.split(v, sizes, dim=2)
    q = q * q.shape[-1] ** -0.5
    queries, prefix_scores = torch.split(q, asked, dim=2), torch.split(q @ prefix_k.mT, asked, dim=2)
    prefix_weights, attended = [], []
    for (count, length), *parts in zip(packing.groups, queries, prefix_scores, own_k, own_v, strict=True):
        query, prefix_score, key, value = (rearrange(t, "b h (c s) d -> b h c s d", c=count) for t in parts)
        scores = torch.cat([prefix_score, _no_later(query @ key.mT)], dim=-1)
        over_prefix, over_own = torch.split(scores.softmax(dim=-1), [packing.prefix, length], dim=-1)
        prefix_weights.append(over_prefix.flatten(2, 3))
        attended.append((over_own @ value).flatten(2, 3))
    return torch.cat(prefix_weights, dim=2) @ prefix_v + torch.cat(attended, dim=2)


def _no_later(scores: Tensor) -> Tensor:
    """Return scores with -inf where a key comes after the query; the queries are the last of the keys' positions."""
    queries, keys = scores.shape[-2:]
    later = torch.ones(queries, keys, dtype=torch.bool, device=scores.device).triu(1 + keys - queries)
    return scores.masked_fill(later, -torch.inf)
