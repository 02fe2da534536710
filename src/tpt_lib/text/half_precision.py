"""Gradients through a float16 tower, scaled so that they do not underflow, and unscaled in float32."""

from __future__ import annotations

import torch
from torch import Tensor

from tpt_lib.models.protocol import ClipLike

HALF_SCALE = 1024.0


def compute_dtypes(model: ClipLike) -> set[torch.dtype]:
    """Return the dtypes of the text tower's weights; in mixed precision there are several."""
    parts = model.text_parts() if hasattr(model, "text_parts") else [model.embed_tokens(model.tokenize([""]))]
    return {part.dtype for part in parts if isinstance(part, Tensor)}


def autocast_dtype(x: Tensor) -> torch.dtype | None:
    """Return the dtype that autocast computes in on the tensor's device, or None if it is off."""
    return torch.get_autocast_dtype(x.device.type) if torch.is_autocast_enabled(x.device.type) else None


def scale_gradient(x: Tensor, factor: float) -> Tensor:
    """Return the same tensor, whose gradient is multiplied by ``factor`` in the backward pass."""
    x = x.view_as(x)
    if x.requires_grad:
        x.register_hook(lambda gradient: gradient * factor)
    return x
