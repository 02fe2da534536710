r"""Text features :math:`\mathbf t_i = \mathbf E_{\mathrm{text}}(\{\mathbf p; y_i\})`, differentiable in the context.

Two paths give the same numbers: the general one runs the model's own forward on full-length prompts; the fast one, for causal
towers, is in ``packed.py``.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar, get_args

import torch
import torch.nn.functional as F
from einops import rearrange, repeat
from jaxtyping import Float
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from tpt_lib.models.protocol import CausalTower, ClipLike
from tpt_lib.prompts.class_prompts import ClassPrompts
from tpt_lib.text.packed import packed_features
from tpt_lib.text.place_tokens import put_tokens

__all__ = ["InitialText", "encode_prompts", "initial_text", "text_path"]

Path = Literal["auto", "fast", "general"]

T = TypeVar("T")

TOKENS_A_GRAPH = 8192  # packed tokens whose graph is held at once on the fast path

ROWS_A_GRAPH = 32  # full-length prompts whose graph is held at once on the general path

HALF_SCALE = 1024.0  # on gradients inside a float16 tower, where they would underflow


def encode_prompts(
    model: ClipLike,
    prompts: ClassPrompts,
    context: Float[Tensor, "*bk l d"] | None = None,
    names: Float[Tensor, "*bn k m d"] | None = None,
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
    return text_encoder(model, prompts, path=path, chunk=chunk)(context, names)


def text_encoder(
    model: ClipLike, prompts: ClassPrompts, *, path: Path = "auto", chunk: int | None = None
) -> Callable[[Tensor | None, Tensor | None], Tensor]:
    """``encode_prompts`` for many calls: a function of context and names, for as long as the model stays as it is."""
    tower, dtypes = _tower(model, prompts, path), _dtypes(model)
    order = prompts.lengths.argsort(stable=True)
    back = order.argsort().to(prompts.context.device)

    def encode(context: Tensor, names: Tensor | None, part: Tensor) -> Tensor:
        if isinstance(tower, str):
            return _general(model, prompts, context, names, part)
        return packed_features(tower, prompts, context, names, part)

    def features_of(context: Tensor | None, names: Tensor | None) -> Tensor:
        context, names, batch = _checked(model, prompts, context, names)
        half = torch.float16 in {*dtypes, _autocast(context)}
        if half:
            context = _scaled_gradient(context, 1 / HALF_SCALE)
            names = None if names is None else _scaled_gradient(names, 1 / HALF_SCALE)
        parts = torch.split(order, class_chunk(prompts, len(context), chunk, isinstance(tower, str)))
        if len(parts) == 1:
            found = encode(context, names, order)
        else:
            again: Any = {"use_reentrant": False, "preserve_rng_state": False}
            found = torch.cat([checkpoint(encode, context, names, part, **again) for part in parts], dim=1)
        found = found.float()[:, back]
        features = F.normalize(_scaled_gradient(found, HALF_SCALE) if half else found, dim=-1)
        return features.reshape(*batch, *features.shape[1:])

    return features_of


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

    features: Float[Tensor, "k e"]
    leaves: list[Tensor] = field(repr=False)
    graph: Tensor = field(repr=False)  # the features again; a backward() of the caller's must not reach it

    def gradients(self, upstream: Float[Tensor, "k e"]) -> list[Tensor]:
        """Gradients in the context, and in free names if there are any, from the gradient in the features."""
        with torch.inference_mode(False):
            return list(torch.autograd.grad(self.graph, self.leaves, upstream, retain_graph=True))


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
    _checked(model, prompts, None, None)

    def build() -> InitialText:
        free = [prompts.context] if prompts.name_tokens is None else [prompts.context, prompts.name_tokens]
        leaves = [token.clone().requires_grad_() for token in free]
        graph = encode_prompts(model, prompts, *leaves, path=path, chunk=chunk)
        return InitialText(graph.detach(), leaves, graph)

    return kept(model, prompts, (path, chunk), build)


def kept(model: ClipLike, prompts: ClassPrompts, key: Any, build: Callable[[], T]) -> T:
    """What ``build`` makes of the text tower, kept with the prompts under ``key`` while the weights stay the same."""
    key = (key, _autocast(prompts.context))
    with _building, torch.inference_mode(False), torch.enable_grad():
        state = _State.of(model)
        known_state, known = prompts.cache.get(key, (None, None))
        if state is not None and state.same(known_state):
            return known
        made = build()
        prompts.cache[key] = (state, made)
        return made


_building = threading.Lock()


def _general(model: ClipLike, prompts: ClassPrompts, context: Tensor, names: Tensor | None, part: Tensor) -> Tensor:
    """The model's own forward on full-length prompts; shapes as in ``packed_features``."""
    ids = prompts.ids[part]
    rows, columns = torch.ones_like(ids).nonzero(as_tuple=True)
    x = put_tokens(model.embed_tokens(ids).flatten(0, 1), prompts, part[rows], columns, context, names)
    x = rearrange(x, "b (k t) d -> (b k) t d", k=len(ids))
    features = model.encode_embeddings(x, repeat(ids.to(x.device), "k t -> (b k) t", b=len(context)))
    return rearrange(features, "(b k) e -> b k e", k=len(ids))


def _tower(model: ClipLike, prompts: ClassPrompts, path: Path) -> CausalTower | str:
    if path not in get_args(Path):
        raise ValueError(f"encode_prompts: path must be one of {', '.join(get_args(Path))}, but got {path!r}")
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
    """The tower, if it gives the model's own features for the shortest and the longest prompt; once a structure."""
    parts = model.text_parts() if hasattr(model, "text_parts") else []
    structure = [part for part in parts if not isinstance(part, Tensor)]
    known, proven = prompts.cache.get("proven", (None, False))
    if known is None or not _alike(known, structure):
        ends = torch.stack([prompts.lengths.argmin(), prompts.lengths.argmax()])
        context, names, _ = _checked(model, prompts, prompts.context, None)
        with torch.no_grad(), torch.autocast(context.device.type, enabled=False):
            fast = F.normalize(packed_features(tower, prompts, context, names, ends).float(), dim=-1)
            own = F.normalize(_general(model, prompts, context, names, ends).float(), dim=-1)
        half = {torch.float16, torch.bfloat16} & _dtypes(model)
        proven = bool((fast - own).abs().max() <= (0.05 if half else 1e-3))
        prompts.cache["proven"] = (structure, proven)
    return tower if proven else "the tower laid open gives other features than the model's own forward"


def class_chunk(prompts: ClassPrompts, batch: int, chunk: int | None, general: bool) -> int:
    if chunk is not None and chunk < 1:
        raise ValueError(f"encode_prompts: chunk must be at least 1, but got {chunk}")
    if chunk is None and general:
        return max(1, ROWS_A_GRAPH // max(1, batch))
    longest = int(prompts.lengths.max()) - prompts.prefix
    tokens = int((prompts.lengths - prompts.prefix).sum()) * batch
    return chunk or (len(prompts.names) if tokens <= TOKENS_A_GRAPH else max(1, TOKENS_A_GRAPH // (longest * batch)))


@dataclass(frozen=True)
class _State:
    """What text features depend on. It holds on to the parts, so that no new one can have the identity of an old one."""

    parts: list[Any]
    marks: list[Any]
    sums: Tensor  # of each weight: a write through ``.data`` leaves no version

    @classmethod
    def of(cls, model: ClipLike) -> _State | None:
        if not hasattr(model, "text_parts"):
            return None
        parts = model.text_parts()
        weights = [w.detach() for w in parts if isinstance(w, Tensor) and w.numel()]
        marks = [(w.data_ptr(), -1 if w.is_inference() else w._version, w.dtype, w.shape) for w in weights]
        return cls(parts, marks, torch.stack([w.sum(dtype=torch.float32) for w in weights]))

    def same(self, other: _State | None) -> bool:
        return (
            other is not None
            and _alike(self.parts, other.parts)
            and self.marks == other.marks
            and torch.equal(self.sums, other.sums)
        )


def _alike(parts: list[Any], others: list[Any]) -> bool:
    """Whether these are the same objects; of settings, which are tuples, whether they are equal."""
    same = (a is b or (isinstance(a, tuple) and a == b) for a, b in zip(parts, others, strict=False))
    return len(parts) == len(others) and all(same)


def _autocast(x: Tensor) -> torch.dtype | None:
    return torch.get_autocast_dtype(x.device.type) if torch.is_autocast_enabled(x.device.type) else None


def _dtypes(model: ClipLike) -> set[torch.dtype]:
    """What a tower computes in: of mixed precision, some weights are float32."""
    parts = model.text_parts() if hasattr(model, "text_parts") else [model.embed_tokens(model.tokenize([""]))]
    return {part.dtype for part in parts if isinstance(part, Tensor)}


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
