"""Attention over packed tokens: from each class's tokens to [shared prefix; own], in groups of classes.

Two layouts give the same numbers. The ragged one has a group for each length and no padding, which is fastest on a CPU. The
padded one has few groups, each with one gather and one fused attention, which is few launches on an accelerator.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from einops import rearrange
from torch import Tensor

from tpt_lib.text.packing import Grid, Packing

QKV = tuple[Tensor, Tensor, Tensor]


def attention(packing: Packing, qkv: QKV, heads: int, *, last: bool = False) -> Tensor:
    """Return the attended values ``(B, n, D)`` of every token, or of each class's ``last`` one, from q, k and v."""
    if packing.grids:
        return _padded(packing, qkv, heads, last=last)
    q, k, v = (rearrange(t, "b n (h d) -> b h n d", h=heads) for t in qkv)
    q = q[:, :, packing.ends] if last else q
    if packing.seen is not None:
        attended = _masked(q, k, v, packing.seen[packing.ends] if last else packing.seen)
    else:
        attended = _own_attention(q, k, v, packing, last=True) if last else _ragged(q, k, v, packing)
    return rearrange(attended, "b h n d -> b n (h d)")


def _masked(q: Tensor, k: Tensor, v: Tensor, seen: Tensor) -> Tensor:
    return (q * q.shape[-1] ** -0.5 @ k.mT).masked_fill(~seen, -torch.inf).softmax(dim=-1) @ v


def _padded(packing: Packing, qkv: QKV, heads: int, *, last: bool) -> Tensor:
    """Gather queries, keys and values into each grid, attend, and gather the results back."""
    if last:
        together = torch.cat(qkv[1:], dim=-1)
        queries = torch.split(qkv[0].index_select(1, packing.ends), [grid.classes for grid in packing.grids], dim=1)
        pairs = zip(packing.grids, queries, strict=True)
        return _joined([_last_in_grid(grid, query, together, heads) for grid, query in pairs])
    together = torch.cat(qkv, dim=-1)
    found = _joined([_in_grid(grid, together, packing.prefix, heads) for grid in packing.grids])
    return found if packing.cells is None else found.index_select(1, packing.cells)


def _in_grid(grid: Grid, together: Tensor, prefix: int, heads: int) -> Tensor:
    """Return the attended values of a grid's queries ``(B, R * width, D)``, from q, k and v in one tensor."""
    cells = together.index_select(1, grid.tokens)
    q, k, v = rearrange(cells, "b (r s) (t h d) -> t (b r) h s d", r=grid.rows, t=3, h=heads)
    attended = _dot_product(q[:, :, prefix:], k, v, grid.mask.to(q.dtype), grid.fused)
    return rearrange(attended, "(b r) h s d -> b (r s) (h d)", r=grid.rows)


def _last_in_grid(grid: Grid, query: Tensor, together: Tensor, heads: int) -> Tensor:
    """Return the attended values of the last query of each class ``(B, classes, D)``, from k and v in one tensor."""
    cells = together.index_select(1, grid.tokens[: grid.classes * grid.last.shape[-1]])
    k, v = rearrange(cells, "b (r s) (t h d) -> t (b r) h s d", r=grid.classes, t=2, h=heads)
    q = rearrange(query, "b r (h d) -> (b r) h 1 d", h=heads)
    attended = _dot_product(q, k, v, grid.last.to(q.dtype), grid.fused)
    return rearrange(attended, "(b r) h 1 d -> b r (h d)", r=grid.classes)


def _dot_product(q: Tensor, k: Tensor, v: Tensor, mask: Tensor, fused: bool) -> Tensor:
    """Attend with a mask that is added to the scores, in one launch if ``fused``.

    Attention that is not fused can pull back a batch of gradients together; torch has no batching rule for the fused backward.
    """
    if fused:
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
    return (q * q.shape[-1] ** -0.5 @ k.mT + mask).softmax(dim=-1) @ v


def _joined(parts: list[Tensor]) -> Tensor:
    return parts[0] if len(parts) == 1 else torch.cat(parts, dim=1)


def _ragged(q: Tensor, k: Tensor, v: Tensor, packing: Packing) -> Tensor:
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
