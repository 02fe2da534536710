"""Choose the engine of text features: packed, if the tower allows it and passes a comparison, else full-length."""

from __future__ import annotations

import weakref
from typing import Literal, get_args

import torch
import torch.nn.functional as F

from tpt_lib.models.identity import Fingerprint, text_fingerprint
from tpt_lib.models.protocol import CausalTower, ClipLike
from tpt_lib.prompts.class_prompts import ClassPrompts, check_prompts
from tpt_lib.text.full_length import full_length_features
from tpt_lib.text.half_precision import compute_dtypes
from tpt_lib.text.packed import packed_features
from tpt_lib.text.packing import Packing

__all__ = ["text_engine"]

Engine = Literal["auto", "packed", "full_length"]
UNLIKE = "the opened tower gives other features than the model's own forward"
TOLERANCE, HALF_TOLERANCE = 1e-3, 0.05

_towers: weakref.WeakKeyDictionary[ClipLike, tuple[Fingerprint, CausalTower | str]] = weakref.WeakKeyDictionary()
_proofs: weakref.WeakKeyDictionary[ClipLike, tuple[object, bool]] = weakref.WeakKeyDictionary()


def text_engine(model: ClipLike, prompts: ClassPrompts) -> str:
    """Return the engine that ``encode_prompts`` uses: ``"packed"``, or ``"full_length: "`` and the reason.

    This runs no model. The packed engine is compared with the model's own forward when it is first used; a model that fails
    falls back to ``"full_length"``, which this function reports from then on.

    Args:
        model: the model the prompts were made for.
        prompts: what ``class_prompts`` returned.

    Returns:
        ``"packed"``, or ``"full_length: "`` and the reason.

    >>> text_engine(model, tpt_lib.class_prompts(model, ["cat"]))
    'packed'
    """
    check_prompts("text_engine", prompts)
    fingerprint = text_fingerprint(model)
    tower = check_pooling(open_tower(model, "auto", fingerprint), prompts)
    if not isinstance(tower, str) and _known_proof(model, fingerprint) is False:
        tower = UNLIKE
    return f"full_length: {tower}" if isinstance(tower, str) else "packed"


def open_tower(model: ClipLike, engine: Engine, fingerprint: Fingerprint | None) -> CausalTower | str:
    """Open the model's causal text tower, or return the reason why the full-length engine is used.

    An open tower is kept while the fingerprint is the same, because looking at a mask waits for an accelerator.
    """
    if engine not in get_args(Engine):
        raise ValueError(f"encode_prompts: engine must be one of {', '.join(get_args(Engine))}, but got {engine!r}")
    if engine == "full_length":
        return "asked for"
    make = getattr(model, "causal_tower", None)
    if make is None:
        return "the model does not open its text tower (causal_tower)"
    if fingerprint is None or fingerprint.blind:
        return make()
    known, tower = _towers.get(model, (None, ""))
    if not fingerprint.same(known):
        tower = make()
        _towers[model] = (fingerprint, tower)
    return tower


def check_pooling(tower: CausalTower | str, prompts: ClassPrompts) -> CausalTower | str:
    if not isinstance(tower, str) and not torch.equal(tower.pool(prompts.ids), prompts.lengths - 1):
        return "the model pools elsewhere than at the end of the text"
    return tower


def choose_tower(
    tower: CausalTower | str, model: ClipLike, prompts: ClassPrompts, engine: Engine, fingerprint: Fingerprint | None
) -> CausalTower | str:
    """Return the tower if the packed engine may use it for these prompts, else the reason why not."""
    tower = check_pooling(tower, prompts)
    if not isinstance(tower, str):
        proven = _known_proof(model, fingerprint)
        if proven is None:
            proven = _prove(tower, model, prompts)
            if fingerprint is not None:
                _proofs[model] = (fingerprint.structure, proven)
        if not proven:
            tower = UNLIKE
    if engine == "packed" and isinstance(tower, str):
        raise ValueError(
            f"encode_prompts: this model has no packed engine: {tower}; use engine='auto' or 'full_length'"
        )
    return tower


def _known_proof(model: ClipLike, fingerprint: Fingerprint | None) -> bool | None:
    """Return the result of the last proof, or None if there is none for the tower's present structure."""
    if fingerprint is None:
        return None
    structure, proven = _proofs.get(model, (None, False))
    return proven if structure == fingerprint.structure else None


def _prove(tower: CausalTower, model: ClipLike, prompts: ClassPrompts) -> bool:
    """Compare both engines on the shortest and the longest prompt. Done once per structure of a tower."""
    ends = torch.stack([prompts.lengths.argmin(), prompts.lengths.argmax()])
    context = prompts.context[None, None] if prompts.context.ndim == 2 else prompts.context[None]
    name_tokens = None if prompts.name_tokens is None else prompts.name_tokens[None]
    packing = Packing.of(prompts, ends, "ragged")
    with torch.no_grad(), torch.autocast(context.device.type, enabled=False):
        packed = F.normalize(packed_features(tower, packing, context, name_tokens).float(), dim=-1)
        own = F.normalize(full_length_features(model, prompts, context, name_tokens, ends).float(), dim=-1)
    half = {torch.float16, torch.bfloat16} & compute_dtypes(model)
    return bool((packed - own).abs().max() <= (HALF_TOLERANCE if half else TOLERANCE))
