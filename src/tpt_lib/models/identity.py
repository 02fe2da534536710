"""Tell one model from another: by its weights for run files, by its objects for the text cache."""

from __future__ import annotations

import hashlib
from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from tpt_lib.models.protocol import ClipLike


def identify(model: object) -> dict[str, str]:
    """Return the model's name and a digest of its weights.

    Args:
        model: a module, or an object with a ``module`` attribute. For anything else the digest is ``"unknown"``.

    Returns:
        The keys ``model`` and ``weights``.

    >>> sorted(identify(torch.nn.Linear(2, 2)))
    ['model', 'weights']
    """
    module = next((each for each in (getattr(model, "module", None), model) if isinstance(each, nn.Module)), None)
    name = getattr(model, "name", "") or type(model if module is None else module).__name__
    return {"model": name, "weights": "unknown" if module is None else digest(module.state_dict().values())}


def digest(tensors: Iterable[Tensor]) -> str:
    """Return a hash of the dtypes, shapes and bytes of tensors, as 16 hexadecimal digits."""
    found = hashlib.blake2b(digest_size=8)
    for tensor in tensors:
        found.update(f"{tensor.dtype}{tuple(tensor.shape)}".encode())
        found.update(tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().data)
    return found.hexdigest()


@dataclass(frozen=True, eq=False)
class Fingerprint:
    """What text features depend on, by identity: modules, settings, hooks and weights.

    Keeps references to the parts so that their ids cannot be reused. Takes no tensor operation to make or compare.

    Convention:
        A write through ``.data`` (``weight.data.mul_(2)``) leaves no trace in torch, so it is not seen. Call
        ``prompts.forget()`` after one. Optimizer steps, ``load_state_dict``, in-place operations and replaced weights
        are seen.

    Args:
        parts: modules, hooks and weights. A tuple is read as settings, and compared by value.
    """

    parts: list[object] = field(repr=False)
    marks: tuple[Hashable, ...] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "marks", tuple(_mark(part) for part in self.parts))

    def same(self, other: Fingerprint | None) -> bool:
        """Return whether both were made of the same parts, unchanged in between."""
        return other is not None and self.marks == other.marks

    @property
    def blind(self) -> bool:
        """Whether there are weights whose in-place changes leave no trace: those made in inference mode."""
        return any(isinstance(part, Tensor) and part.is_inference() for part in self.parts)

    @property
    def structure(self) -> tuple[Hashable, ...]:
        """Everything but the weights: ``(type, id)`` of modules and hooks, settings by value; hashable."""
        return tuple(mark for part, mark in zip(self.parts, self.marks, strict=True) if not isinstance(part, Tensor))


def text_fingerprint(model: ClipLike) -> Fingerprint | None:
    """Return the fingerprint of what the model's text features depend on.

    Args:
        model: the model that encodes the text.

    Returns:
        The fingerprint of the model as it is now, or None if the model has no ``text_parts()``.

    >>> text_fingerprint(model).same(text_fingerprint(model))
    True
    """
    parts = getattr(model, "text_parts", None)
    return None if parts is None else Fingerprint(list(parts()))


def _mark(part: object) -> Hashable:
    if isinstance(part, Tensor):
        version = -1 if part.is_inference() else part._version
        return id(part), part.data_ptr(), version, part.dtype, part.shape
    return part if isinstance(part, tuple) else (type(part), id(part))
