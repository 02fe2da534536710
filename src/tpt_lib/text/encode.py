r"""Text features :math:`\mathbf t_i = \mathbf E_{\mathrm{text}}(\{\mathbf p; y_i\})`, differentiable in the context.

Two engines give the same numbers: ``full_length`` runs the model's own forward on full-length prompts; ``packed``, for causal
towers, computes what classes share once, and only what a feature depends on.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from tpt_lib.models.identity import Fingerprint, text_fingerprint
from tpt_lib.models.protocol import CausalTower, ClipLike
from tpt_lib.prompts.class_prompts import ClassPrompts, check_prompts
from tpt_lib.text import half_precision
from tpt_lib.text.choose import Engine, choose_tower, open_tower
from tpt_lib.text.full_length import full_length_features
from tpt_lib.text.half_precision import autocast_dtype, compute_dtypes, scale_gradient
from tpt_lib.text.packed import packed_features
from tpt_lib.text.packing import Layout, Packing
from tpt_lib.types import kind_of

__all__ = ["encode_prompts"]

LayoutChoice = Literal["auto", "ragged", "padded"]
TOKENS_A_GRAPH = 8192  # packed tokens whose graph is held at the same time
FLOATS_A_PASS = 3 * 2**18  # packed tokens times width on a CPU: 12 MB in an MLP, whose memory the C library keeps
ROWS_A_GRAPH = 32  # full-length prompts whose graph is held at the same time


def encode_prompts(
    model: ClipLike,
    prompts: ClassPrompts,
    context: Float[Tensor, "*bk l d"] | None = None,
    name_tokens: Float[Tensor, "*bn k m d"] | None = None,
    *,
    engine: Engine = "auto",
    chunk: int | None = None,
    layout: LayoutChoice = "auto",
) -> Float[Tensor, "*b k e"]:
    """Encode the prompt of every class as L2-normalized float32 features, differentiable in context and free name tokens.

    Prompts with several templates give the normalized mean of the templates' features, as CLIP does.

    Args:
        model: the model the prompts were made for.
        prompts: what ``class_prompts`` returned.
        context: ``(*batch, *prompts.context.shape)`` (default None: the prompts' own).
        name_tokens: free name tokens ``(*batch, K, M, D)``, if the prompts have any (default None: the prompts' own).
        engine: ``"packed"`` or ``"full_length"`` forces one; ``text_engine`` returns which one ``"auto"`` (default) uses.
        chunk: number of classes whose graph is held at the same time. With more classes, a backward pass computes each
            chunk's graph again. The default None holds as many as have 8192 packed tokens, or 32 full-length prompts.
        layout: how the packed engine groups classes for attention. ``"ragged"`` has a group for each length, without padding;
            ``"padded"`` has few padded groups, so that it launches few operations. The default ``"auto"`` is ``"ragged"`` on a
            CPU and ``"padded"`` elsewhere. Affects speed and memory, not results.

    Returns:
        Features ``(*batch, K, E)`` of unit length.

    >>> prompts = tpt_lib.class_prompts(model, ["cat", "dog", "red panda"])
    >>> encode_prompts(model, prompts).shape
    torch.Size([3, 256])
    >>> encode_prompts(model, prompts, context=torch.zeros(5, 4, 256)).shape
    torch.Size([5, 3, 256])
    """
    opened = partial(open_encoder, model, engine=engine, chunk=chunk, layout=layout)
    encoder = opened(prompts)
    if not prompts.others:
        return encoder(context, name_tokens)
    if context is not None or name_tokens is not None:
        raise ValueError(
            f"encode_prompts: these prompts have {1 + len(prompts.others)} templates, so they take no context or name "
            "tokens. Encode prompts of one template"
        )
    total = encoder(None, None)
    for one in prompts.others:
        total = total + opened(replace(one, model=model))(None, None)  # the first template's model was checked
    return F.normalize(total, dim=-1)


@dataclass(frozen=True)
class TextEncoder:
    """A model's text tower opened for some prompts: a function of context and name tokens, valid for one call."""

    model: ClipLike
    prompts: ClassPrompts
    tower: CausalTower | str
    chunk: int | None
    layout: Layout
    dtypes: set[torch.dtype]
    fingerprint: Fingerprint | None
    fused: bool = True  # whether attention is fused where the layout allows it

    def __call__(self, context: Tensor | None, name_tokens: Tensor | None) -> Tensor:
        context, name_tokens, batch = _broadcast(self.prompts, context, name_tokens)
        half = torch.float16 in {*self.dtypes, autocast_dtype(context)}
        if half:
            context = scale_gradient(context, 1 / half_precision.HALF_SCALE)
            name_tokens = None if name_tokens is None else scale_gradient(name_tokens, 1 / half_precision.HALF_SCALE)
        plan, encode = self.plan(len(context)), self._part
        if self._held(len(context)) < len(self.prompts.names):
            encode = partial(checkpoint, encode, use_reentrant=False, preserve_rng_state=False)
        parts = [encode(context, name_tokens, part) for part in plan.parts]
        found = (parts[0] if len(parts) == 1 else torch.cat(parts, dim=1)).float().index_select(1, plan.places)
        features = F.normalize(scale_gradient(found, half_precision.HALF_SCALE) if half else found, dim=-1)
        return features.reshape(*batch, *features.shape[1:])

    def plan(self, batch: int) -> Plan:
        """Return the parts of the classes that are encoded together for a batch of contexts, cached with the prompts."""
        packed, held, passes = not isinstance(self.tower, str), self._held(batch), 1
        if packed and self.layout == "ragged" and self.prompts.context.device.type == "cpu":
            passes = max(1, math.ceil(_tokens(self.prompts, batch) * self.prompts.context.shape[-1] / FLOATS_A_PASS))

        @torch.inference_mode(False)
        def build() -> Plan:
            order = self.prompts.lengths.argsort(stable=True)
            ends = (self.prompts.lengths[order] - self.prompts.prefix).cumsum(0)
            part_of_each = torch.stack([torch.arange(len(order)) // held, (ends - 1) * passes // ends[-1]])
            parts = order.split(part_of_each.unique_consecutive(dim=1, return_counts=True)[1].tolist())
            places = order.argsort().to(self.prompts.context.device)
            return Plan([Packing.of(self.prompts, part, self.layout) if packed else part for part in parts], places)

        return self.prompts.cache.keep(("plan", packed, held, passes, self.layout), self.fingerprint, build)

    def _held(self, batch: int) -> int:
        """Return the number of classes whose graph is held at the same time."""
        chunk = class_chunk(self.prompts, batch, self.chunk, full_length=isinstance(self.tower, str))
        return min(len(self.prompts.names), chunk)

    def _part(self, context: Tensor, name_tokens: Tensor | None, part: Packing | Tensor) -> Tensor:
        if isinstance(part, Tensor):
            return full_length_features(self.model, self.prompts, context, name_tokens, part)
        assert not isinstance(self.tower, str)
        return packed_features(self.tower, part if self.fused else part.unfused(), context, name_tokens)


@dataclass(frozen=True)
class Plan:
    """The classes in parts, shortest first, and the place of each class among them."""

    parts: Sequence[Packing | Tensor]
    places: Tensor


def open_encoder(
    model: ClipLike,
    prompts: ClassPrompts,
    *,
    engine: Engine = "auto",
    chunk: int | None = None,
    layout: LayoutChoice = "auto",
) -> TextEncoder:
    """Open the text tower for some prompts."""
    check_model(model, prompts)
    if chunk is not None and chunk < 1:
        raise ValueError(f"encode_prompts: chunk must be at least 1, but got {chunk}")
    if layout not in ("auto", "ragged", "padded"):
        raise ValueError(f"encode_prompts: layout must be one of auto, ragged, padded, but got {layout!r}")
    if layout == "auto":
        layout = "ragged" if prompts.context.device.type == "cpu" else "padded"
    fingerprint = text_fingerprint(model)
    opened = open_tower(model, engine, fingerprint)
    tower = choose_tower(opened, model, prompts, engine, fingerprint)
    return TextEncoder(model, prompts, tower, chunk, layout, compute_dtypes(model), fingerprint)


def check_model(model: ClipLike, prompts: ClassPrompts) -> None:
    check_prompts("encode_prompts", prompts)
    if prompts.model != model:
        raise ValueError(
            f"encode_prompts: these prompts were made for another model, {prompts.model!r}, not for {model!r}; "
            "rebuild them with class_prompts(model, names), or, if this model is a copy of that one, use "
            "dataclasses.replace(prompts, model=model)"
        )


def class_chunk(prompts: ClassPrompts, batch: int, chunk: int | None, full_length: bool) -> int:
    """Return the number of classes whose graph is held at the same time for a batch of contexts."""
    if chunk is None and full_length:
        return max(1, ROWS_A_GRAPH // max(1, batch))
    longest = int(prompts.lengths.max()) - prompts.prefix
    fits = _tokens(prompts, batch) <= TOKENS_A_GRAPH
    return chunk or (len(prompts.names) if fits else max(1, TOKENS_A_GRAPH // (longest * batch)))


def _tokens(prompts: ClassPrompts, batch: int) -> int:
    """Return the number of packed tokens of all classes for a batch of contexts."""
    return int((prompts.lengths - prompts.prefix).sum()) * batch


def _broadcast(
    prompts: ClassPrompts, context: Tensor | None, name_tokens: Tensor | None
) -> tuple[Tensor, Tensor | None, torch.Size]:
    """Return context ``(B, 1 or K, L, D)`` and name tokens ``(B, K, M, D)`` of one batch shape, checked."""
    if context is None and prompts.meta_net is not None:
        raise ValueError(
            "encode_prompts: a CoCoOp context depends on the image; pass context=conditional_context(prompts, image_feature)"
        )
    context = prompts.context if context is None else context
    batch = _batch_shape("context", context, prompts.context)
    own = prompts.name_tokens
    if own is None and name_tokens is not None:
        raise ValueError("encode_prompts: name_tokens were given, but these prompts have no free name tokens")
    if own is not None:
        name_tokens = own if name_tokens is None else name_tokens
        batch = torch.broadcast_shapes(batch, _batch_shape("name_tokens", name_tokens, own))
        name_tokens = name_tokens.expand(*batch, *own.shape).reshape(batch.numel(), *own.shape)
    context = context.expand(*batch, *prompts.context.shape).reshape(batch.numel(), *prompts.context.shape)
    return context if context.ndim == 4 else context[:, None], name_tokens, batch


def _batch_shape(what: str, given: Tensor, own: Tensor) -> torch.Size:
    if (
        not isinstance(given, Tensor)
        or not given.is_floating_point()
        or given.shape[given.ndim - own.ndim :] != own.shape
    ):
        raise ValueError(
            f"encode_prompts: {what} must be floats of shape (*batch, {', '.join(map(str, own.shape))}), but got "
            f"{kind_of(given)}"
        )
    return given.shape[: given.ndim - own.ndim]
