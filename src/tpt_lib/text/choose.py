"""Which engine computes text features: the packed one, if the tower allows it and is proven right, else the full-length one."""

from __future__ import annotations

import weakref
from typing import Literal, get_args

import torch
import torch.nn.functional as F

from tpt_lib.models.identity import text_fingerprint
from tpt_lib.models.protocol import CausalTower, ClipLike
from tpt_lib.prompts.class_prompts import ClassPrompts, check_prompts
from tpt_lib.text.full_length import full_length_features
from tpt_lib.text.half_precision import compute_dtypes
from tpt_lib.text.packed import packed_features

__all__ = ["text_engine"]

Engine = Literal["auto", "packed", "full_length"]
UNLIKE = "the opened tower gives other features than the model's own forward"
TOLERANCE, HALF_TOLERANCE = 1e-3, 0.05

_proofs: weakref.WeakKeyDictionary[ClipLike, tuple[object, bool]] = weakref.WeakKeyDictionary()


def text_engine(model: ClipLike, prompts: ClassPrompts) -> str:
    """Return the engine that ``encode_prompts`` uses: ``"packed"``, or ``"full_length: "`` and the reason.

    This runs no model. The packed engine is compared with the model's own forward when it is first used; a model that fails
    falls back to ``"full_length"``, which this function reports from then on.

    Args:
        model: the model the prompts were made for.
        prompts: what ``class_prompts`` returned.

    >>> text_engine(model, tpt_lib.class_prompts(model, ["cat"]))
    'packed'
    """
    check_prompts("text_engine", prompts)
    tower = check_pooling(open_tower(model, "auto"), prompts)
    if not isinstance(tower, str) and _known_proof(model) is False:
        tower = UNLIKE
    return f"full_length: {tower}" if isinstance(tower, str) else "packed"


def open_tower(model: ClipLike, engine: Engine) -> CausalTower | str:
    """Open the model's causal text tower, or say in words why the full-length engine is used."""
    if engine not in get_args(Engine):
        raise ValueError(f"encode_prompts: engine must be one of {', '.join(get_args(Engine))}, but got {engine!r}")
    if engine == "full_length":
        return "asked for"
    make = getattr(model, "causal_tower", None)
    return make() if make else "the model does not open its text tower (causal_tower)"


def check_pooling(tower: CausalTower | str, prompts: ClassPrompts) -> CausalTower | str:
    if not isinstance(tower, str) and not torch.equal(tower.pool(prompts.ids), prompts.lengths - 1):
        return "the model pools elsewhere than at the end of the text"
    return tower


def choose_tower(tower: CausalTower | str, model: ClipLike, prompts: ClassPrompts, engine: Engine) -> CausalTower | str:
    """Return the tower if the packed engine may use it for these prompts, else the reason why not."""
    tower = check_pooling(tower, prompts)
    if not isinstance(tower, str):
        proven = _known_proof(model)
        if proven is None:
            proven = _prove(tower, model, prompts)
        if not proven:
            tower = UNLIKE
    if engine == "packed" and isinstance(tower, str):
        raise ValueError(
            f"encode_prompts: this model has no packed engine: {tower}; use engine='auto' or 'full_length'"
        )
    return tower


def _known_proof(model: ClipLike) -> bool | None:
    """Return what the last proof said, None if there is none for the tower as it is now."""
    fingerprint = text_fingerprint(model)
    if fingerprint is None:
        return None
    structure, proven = _proofs.get(model, (None, False))
    return proven if structure == fingerprint.structure else None


def _prove(tower: CausalTower, model: ClipLike, prompts: ClassPrompts) -> bool:
    """Compare both engines on the shortest and the longest prompt; done once for each structure of a tower."""
    ends = torch.stack([prompts.lengths.argmin(), prompts.lengths.argmax()])
    context = prompts.context[None, None] if prompts.context.ndim == 2 else prompts.context[None]
    name_tokens = None if prompts.name_tokens is None else prompts.name_tokens[None]
    with torch.no_grad(), torch.autocast(context.device.type, enabled=False):
        packed = F.normalize(packed_features(tower, prompts, context, name_tokens, ends).float(), dim=-1)
        own = F.normalize(full_length_features(model, prompts, context, name_tokens, ends).float(), dim=-1)
    half = {torch.float16, torch.bfloat16} & compute_dtypes(model)
    proven = bool((packed - own).abs().max() <= (HALF_TOLERANCE if half else TOLERANCE))
    fingerprint = text_fingerprint(model)
    if fingerprint is not None:
        _proofs[model] = (fingerprint.structure, proven)
    return proven
