"""Refuse features that are not finite or not of unit length: logits computed from them are wrong in silence."""

from __future__ import annotations

import torch
from torch import Tensor

from tpt_lib.types import kind_of

__all__ = ["are_unit", "check_rows", "check_unit"]

TOLERANCE = 1e-2  # features of unit length, rounded to half precision, are within 4e-3


def are_unit(features: Tensor) -> Tensor:
    """Return whether all features ``(…, E)`` are finite and of unit length, without waiting for an accelerator."""
    return ((_lengths(features) - 1).abs() <= TOLERANCE).all()


def check_unit(caller: str, what: str, features: Tensor) -> None:
    """Refuse features ``(…, E)`` with a row that is not finite or not of unit length.

    Waits for an accelerator once: a length is not finite where the row is not.
    """
    if are_unit(features):
        return
    if not torch.isfinite(features).all():
        raise ValueError(
            f"{caller}: {what} are not all finite; look at the image, or at the model's towers (encode_image, "
            "encode_embeddings)"
        )
    lengths = _lengths(features)
    raise ValueError(
        f"{caller}: {what} must have unit length, but their lengths are {lengths.min():.3g} to {lengths.max():.3g}; normalize "
        "them with torch.nn.functional.normalize(features, dim=-1), as encode_views and encode_prompts do"
    )


def check_rows(caller: str, function: str, found: object, rows: int) -> Tensor:
    """Return what a model's function gave for ``rows`` inputs, if it is a float tensor ``(rows, E)``."""
    if isinstance(found, Tensor) and found.is_floating_point() and found.ndim == 2 and len(found) == rows:
        return found
    raise TypeError(
        f"{caller}: {function} of the model must return a float tensor with a row for each input, ({rows}, E), but it "
        f"returned {kind_of(found)}"
    )


def _lengths(features: Tensor) -> Tensor:
    return torch.linalg.vector_norm(features.float(), dim=-1)
