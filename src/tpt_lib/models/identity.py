"""What tells one model from another."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor


def identify(model: Any) -> dict[str, str]:
    """The model's name, and what tells its weights from another's: a hash of them, where it has or is a module."""
    module = next((each for each in (getattr(model, "module", None), model) if isinstance(each, torch.nn.Module)), None)
    name = getattr(model, "name", "") or type(model if module is None else module).__name__
    return {"model": name, "weights": "unknown" if module is None else _digest(module.state_dict().values())}


def _digest(tensors: Iterable[Tensor]) -> str:
    found = hashlib.blake2b(digest_size=8)
    for tensor in tensors:
        found.update(f"{tensor.dtype}{tuple(tensor.shape)}".encode())
        found.update(tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().data)
    return found.hexdigest()


@dataclass(frozen=True, eq=False)
class Fingerprint:
    parts: list[Any]
    marks: list[Any]

    def same(self, other: Fingerprint | None) -> bool:
        if other is None or len(self.parts) != len(other.parts) or self.marks != other.marks:
            return False
        return all(a is b or (isinstance(a, tuple) and a == b) for a, b in zip(self.parts, other.parts, strict=True))

    @property
    def structure(self) -> tuple[Any, ...]:
        return tuple(p if isinstance(p, tuple) else (type(p), id(p)) for p in self.parts if not isinstance(p, Tensor))


def text_fingerprint(model: Any) -> Fingerprint | None:
    if not hasattr(model, "text_parts"):
        return None
    parts = model.text_parts()
    weights = [w for w in parts if isinstance(w, Tensor)]
    return Fingerprint(
        parts, [(w.data_ptr(), -1 if w.is_inference() else w._version, w.dtype, w.shape) for w in weights]
    )
