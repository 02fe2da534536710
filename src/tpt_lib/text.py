r"""Text features :math:`\mathbf t_i = \mathbf E_{\mathrm{text}}(\{\mathbf p; y_i\})`, differentiable in the context.

Two paths give the same numbers. The general one runs the model's own forward on full-length prompts. The fast one, for
causal towers, computes what all classes share once, and nothing that no feature depends on:

- positions before the class name do not see it, so they are computed once, not K times;
- from the name to the end of text, the tokens of all classes are packed without padding, classes of one length side by side;
- the last block is computed at the end of each text only.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Any, Literal

import torch
import torch.nn.functional as F
from einops import rearrange, repeat
from jaxtyping import Float
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from tpt_lib.model import CausalTower, ClipLike
from tpt_lib.prompts import ClassPrompts
from tpt_lib.tokens import CONTEXT, NAME

__all__ = ["InitialText", "encode_prompts", "initial_text", "text_path"]

Path = Literal["auto", "fast", "general"]

TOKENS_A_GRAPH = 8192  # packed tokens whose graph is held at once on the fast path
ROWS_A_GRAPH = 32  # full-length prompts whose graph is held at once on the general path
HALF_SCALE = 1024.0  # on gradients inside a float16 tower, where they would underflow


def encode_prompts(
    model: ClipLike,
    prompts: ClassPrompts,
    context: Float[Tensor, "*bk l d"] | None = None,
    names: Float[Tensor, "*b k m d"] | None = None,
    *,
    path: Path = "auto",
    chunk: int | None = None,
) -> Float[Tensor, "*b k e"]:
    """L2-normalised float32 text features of every class, differentiable in the context and in free names.

    Args:
        model: the model the prompts were made for.
        prompts: what ``class_prompts`` returned.
        context: ``(*batch, *prompts.context.shape)``; the prompts' own by default.
        names: free name tokens ``(*batch, K, M, D)``, where the prompts have any; theirs by default.
        path: ``"fast"`` or ``"general"`` forces one; ``text_path`` tells which ``"auto"`` takes.
        chunk: how many classes' graph is held at once. If there are more classes, gradients compute each chunk's graph
            again. By default as many as have 8192 packed tokens (fast), or 32 (general).

    Returns:
        Features ``(*batch, K, E)`` of unit length.

    >>> prompts = tpt_lib.class_prompts(model, ["cat", "dog", "red panda"])
    >>> encode_prompts(model, prompts).shape
    torch.Size([3, 256])
    >>> encode_prompts(model, prompts, context=torch.zeros(5, 4, 256)).shape
    torch.Size([5, 3, 256])
    """
    context, names, batch = _checked(model, prompts, context, names)
    tower = _tower(model, prompts, path)
    half = torch.float16 in _dtypes(model)
    if half:
        context = _scaled_gradient(context, 1 / HALF_SCALE)
        names = None if names is None else _scaled_gradient(names, 1 / HALF_SCALE)
    order = prompts.lengths.argsort(stable=True)
    parts = torch.split(order, _chunk(prompts, len(context), chunk, isinstance(tower, str)))

    def encode(context: Tensor, names: Tensor | None, part: Tensor) -> Tensor:
        if isinstance(tower, str):
            return _general(model, prompts, context, names, part)
        return _fast(tower, prompts, context, names, part)

    if len(parts) == 1:
        found = encode(context, names, order)
    else:
        again: Any = {"use_reentrant": False, "preserve_rng_state": False}
        found = torch.cat([checkpoint(encode, context, names, part, **again) for part in parts], dim=1)
    found = found.float()[:, order.argsort().to(found.device)]
    features = F.normalize(_scaled_gradient(found, HALF_SCALE) if half else found, dim=-1)
    return features.reshape(*batch, *features.shape[1:])


def text_path(model: ClipLike, prompts: ClassPrompts) -> str:
    """Which path ``encode_prompts`` takes: ``"fast"``, or ``"general: "`` and the reason.

    >>> text_path(model, tpt_lib.class_prompts(model, ["cat"]))
    'fast'
    """
    tower = _tower(model, prompts, "auto")
    return f"general: {tower}" if isinstance(tower, str) else "fast"


@dataclass(frozen=True)
class InitialText:
    """Text features at the initial context, with the graph that leads to them; made once and used for every image."""

    context: Float[Tensor, "*k l d"]
    names: Float[Tensor, "k m d"] | None
    features: Float[Tensor, "k e"]

    def gradients(self, upstream: Float[Tensor, "k e"]) -> list[Tensor]:
        """Gradients in the context, and in free names if there are any, from the gradient in the features."""
        leaves = [self.context] if self.names is None else [self.context, self.names]
        with torch.inference_mode(False):
            return list(torch.autograd.grad(self.features, leaves, upstream, retain_graph=True))


def initial_text(
    model: ClipLike, prompts: ClassPrompts, *, path: Path = "auto", chunk: int | None = None
) -> InitialText:
    """Text features at the prompts' own context and their graph, kept with the prompts while the weights stay the same.

    Every image starts here, so a step of TPT costs one backward pass through this graph and one forward pass.

    Args:
        model: the model the prompts were made for.
        prompts: what ``class_prompts`` returned.
        path: as for ``encode_prompts``.
        chunk: as for ``encode_prompts``; smaller takes less memory and more time.

    >>> prompts = tpt_lib.class_prompts(model, ["cat", "dog"])
    >>> initial = initial_text(model, prompts)
    >>> initial is initial_text(model, prompts), initial.gradients(torch.ones(2, 256))[0].shape
    (True, torch.Size([4, 256]))
    """
    device = prompts.context.device.type
    key = (path, chunk, torch.is_autocast_enabled(device) and torch.get_autocast_dtype(device))
    with _building, torch.inference_mode(False), torch.enable_grad():
        state = _weights_state(model)
        kept_state, kept = prompts.cache.get(key, (None, None))
        if (
            kept is not None
            and state is not None
            and kept_state[0] == state[0]
            and torch.equal(kept_state[1], state[1])
        ):
            return kept
        context = prompts.context.clone().requires_grad_()
        names = None if prompts.name_tokens is None else prompts.name_tokens.clone().requires_grad_()
        initial = InitialText(context, names, encode_prompts(model, prompts, context, names, path=path, chunk=chunk))
        prompts.cache[key] = (state, initial)
        return initial


_building = threading.Lock()


# The general path: the model's own forward, full length.


def _general(model: ClipLike, prompts: ClassPrompts, context: Tensor, names: Tensor | None, part: Tensor) -> Tensor:
    ids = prompts.ids[part]
    rows, columns = torch.ones_like(ids).nonzero(as_tuple=True)
    x = _put(model.embed_tokens(ids).flatten(0, 1), prompts, part[rows], columns, context, names)
    x = rearrange(x, "b (k t) d -> (b k) t d", k=len(ids))
    features = model.encode_text(x, repeat(ids.to(x.device), "k t -> (b k) t", b=len(context)))
    return rearrange(features, "(b k) e -> b k e", k=len(ids))


def _put(
    x: Tensor, prompts: ClassPrompts, classes: Tensor, positions: Tensor, context: Tensor, names: Tensor | None
) -> Tensor:
    """Token embeddings ``(n, D)`` of the given classes and positions, with the free ones put in: ``(B, n, D)``."""
    x = x.expand(len(context), *x.shape)
    for role, values in ((CONTEXT, context), (NAME, names)):
        if values is None:
            continue
        free = prompts.roles == role
        slots = (free.cumsum(dim=1) - 1)[classes, positions]
        at = free[classes, positions].nonzero().squeeze(1)
        owners = classes[at] if values.shape[1] > 1 else torch.zeros_like(at)
        x = x.index_copy(1, at.to(x.device), values[:, owners, slots[at]].to(x.dtype))
    return x


# The fast path: [shared prefix; packed suffixes], attention within each.


@dataclass(frozen=True)
class _Packing:
    """The tokens of some classes: the shared prefix, then each class's own, in groups of one length."""

    prefix: int
    groups: list[tuple[int, int]]  # classes, and the length of each
    classes: Tensor
    positions: Tensor
    ends: Tensor  # where each class's text ends in the packing

    @classmethod
    def of(cls, prompts: ClassPrompts, part: Tensor) -> _Packing:
        own = prompts.lengths[part] - prompts.prefix
        lengths, counts = own.unique_consecutive(return_counts=True)
        inside = torch.arange(prompts.ids.shape[1]) < prompts.lengths[part, None]
        inside[:, : prompts.prefix] = False
        rows, columns = inside.nonzero(as_tuple=True)
        return cls(
            prefix=prompts.prefix,
            groups=list(zip(counts.tolist(), lengths.tolist(), strict=True)),
            classes=torch.cat([part[:1].expand(prompts.prefix), part[rows]]),
            positions=torch.cat([torch.arange(prompts.prefix), columns]),
            ends=prompts.prefix + own.cumsum(0) - 1,
        )


def _fast(tower: CausalTower, prompts: ClassPrompts, context: Tensor, names: Tensor | None, part: Tensor) -> Tensor:
    packing = _Packing.of(prompts, part)
    device = context.device
    positions, ends = packing.positions.to(device), packing.ends.to(device)
    x = tower.embed(prompts.ids[packing.classes, packing.positions].to(device))
    x = _put(x, prompts, packing.classes, packing.positions, context, names)
    x = x + tower.positions[positions].to(x.dtype)
    for block in tower.blocks[:-1]:
        q, k, v = (rearrange(t, "b n (h d) -> b h n d", h=block.heads) for t in block.qkv(x))
        shared, own = torch.split(q, [packing.prefix, len(positions) - packing.prefix], dim=2)
        shared_k, shared_v = k[:, :, : packing.prefix], v[:, :, : packing.prefix]
        both = [_shared_attention(shared, shared_k, shared_v), _own_attention(own, k, v, packing)]
        x = block.merge(x, rearrange(torch.cat(both, dim=2), "b h n d -> b n (h d)"))
    last = tower.blocks[-1]
    q, k, v = (rearrange(t, "b n (h d) -> b h n d", h=last.heads) for t in last.qkv(x))
    attended = _own_attention(q[:, :, ends], k, v, packing, last=True)
    return tower.finish(last.merge(x[:, ends], rearrange(attended, "b h n d -> b n (h d)")))


def _shared_attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Causal attention within the shared prefix."""
    return _no_later(q @ k.mT * q.shape[-1] ** -0.5).softmax(dim=-1) @ v


def _own_attention(q: Tensor, k: Tensor, v: Tensor, packing: _Packing, *, last: bool = False) -> Tensor:
    """Causal attention of each class's tokens, or of its ``last`` one alone, over the prefix and the class's own tokens.

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
    """Scores with -inf where a key comes after the query; the queries are the last of the keys' positions."""
    queries, keys = scores.shape[-2:]
    later = torch.ones(queries, keys, dtype=torch.bool, device=scores.device).triu(1 + keys - queries)
    return scores.masked_fill(later, -torch.inf)


# Which path, in what pieces, and is what was kept still true?


def _tower(model: ClipLike, prompts: ClassPrompts, path: Path) -> CausalTower | str:
    if path == "general":
        return "asked for"
    make = getattr(model, "causal_tower", None)
    tower: CausalTower | str = make() if make else "the model does not lay its text tower open (causal_tower)"
    if not isinstance(tower, str) and not torch.equal(tower.pool(prompts.ids), prompts.lengths - 1):
        tower = "the model pools elsewhere than at the end of the text"
    if not isinstance(tower, str):
        tower = _proven(tower, model, prompts)
    if path == "fast" and isinstance(tower, str):
        raise ValueError(f"encode_prompts: this model has no fast path: {tower}; use path='auto' or 'general'")
    return tower


def _proven(tower: CausalTower, model: ClipLike, prompts: ClassPrompts) -> CausalTower | str:
    """The tower, if it gives the model's own features for the shortest and the longest prompt; asked once a prompts."""
    if "proven" not in prompts.cache:
        ends = torch.stack([prompts.lengths.argmin(), prompts.lengths.argmax()])
        context, names, _ = _checked(model, prompts, prompts.context, None)
        with torch.no_grad(), torch.autocast(context.device.type, enabled=False):
            fast = F.normalize(_fast(tower, prompts, context, names, ends).float(), dim=-1)
            own = F.normalize(_general(model, prompts, context, names, ends).float(), dim=-1)
        half = {torch.float16, torch.bfloat16} & _dtypes(model)
        prompts.cache["proven"] = bool((fast - own).abs().max() <= (0.05 if half else 1e-3))
    return tower if prompts.cache["proven"] else "the tower laid open gives other features than the model's own forward"


def _chunk(prompts: ClassPrompts, batch: int, chunk: int | None, general: bool) -> int:
    if chunk is not None and chunk < 1:
        raise ValueError(f"encode_prompts: chunk must be at least 1, but got {chunk}")
    if chunk is None and general:
        return max(1, ROWS_A_GRAPH // batch)
    longest = int(prompts.lengths.max()) - prompts.prefix
    tokens = int((prompts.lengths - prompts.prefix).sum()) * batch
    return chunk or (len(prompts.names) if tokens <= TOKENS_A_GRAPH else max(1, TOKENS_A_GRAPH // (longest * batch)))


def _weights_state(model: ClipLike) -> tuple[list[Any], Tensor] | None:
    """Identity and version of every weight, and one element of each: writes through ``.data`` leave no version."""
    if not hasattr(model, "text_weights"):
        return None
    weights = [w.detach() for w in model.text_weights() if w.numel()]
    marks = [(w.data_ptr(), -1 if w.is_inference() else w._version, w.dtype, w.shape) for w in weights]
    return marks, torch.stack([w.flatten()[w.numel() // 2].float() for w in weights])


def _dtypes(model: ClipLike) -> set[torch.dtype]:
    """What a tower computes in: of mixed precision, some weights are float32."""
    weights = model.text_weights() if hasattr(model, "text_weights") else [model.embed_tokens(model.tokenize([""]))]
    return {w.dtype for w in weights}


def _scaled_gradient(x: Tensor, factor: float) -> Tensor:
    """The same tensor, whose gradient is multiplied by ``factor`` on its way back."""
    x = x.view_as(x)
    if x.requires_grad:
        x.register_hook(lambda gradient: gradient * factor)
    return x


def _checked(
    model: ClipLike, prompts: ClassPrompts, context: Tensor | None, names: Tensor | None
) -> tuple[Tensor, Tensor | None, torch.Size]:
    """Context ``(B, 1 or K, L, D)`` and free names ``(B, K, M, D)`` of one batch shape, after checking what came."""
    if prompts.model != model:
        raise ValueError(
            f"encode_prompts: these prompts were made for another model, {prompts.model!r}, not for {model!r}; "
            "make them anew with class_prompts(model, names)"
        )
    if context is None and prompts.bias_net is not None:
        raise ValueError(
            "encode_prompts: a CoCoOp context depends on the image; pass context=conditional_context(prompts, image_feature)"
        )
    context = prompts.context if context is None else context
    batch = _batch("context", context, prompts.context)
    if names is not None and prompts.name_tokens is None:
        raise ValueError("encode_prompts: names were given, but these prompts have no free names (name_tokens)")
    names = prompts.name_tokens if names is None else names
    if names is not None and prompts.name_tokens is not None:
        batch = torch.broadcast_shapes(batch, _batch("names", names, prompts.name_tokens))
        names = names.expand(*batch, *prompts.name_tokens.shape).reshape(batch.numel(), *prompts.name_tokens.shape)
    context = context.expand(*batch, *prompts.context.shape).reshape(batch.numel(), *prompts.context.shape)
    return context if context.ndim == 4 else context[:, None], names, batch


def _batch(what: str, given: Tensor, own: Tensor) -> torch.Size:
    if not given.is_floating_point() or given.shape[given.ndim - own.ndim :] != own.shape:
        raise ValueError(
            f"encode_prompts: {what} must be floats of shape (*batch, {', '.join(map(str, own.shape))}), but got "
            f"{given.dtype} of shape {tuple(given.shape)}"
        )
    return given.shape[: given.ndim - own.ndim]
