"""What tells one model from another."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
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
