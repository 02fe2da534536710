"""Learned tokens placed where a prompt leaves room for them."""

from __future__ import annotations

import torch
from torch import Tensor

from tpt_lib.prompts.class_prompts import ClassPrompts
from tpt_lib.prompts.templates import CONTEXT, NAME


def put_tokens(
    x: Tensor, prompts: ClassPrompts, classes: Tensor, positions: Tensor, context: Tensor, name_tokens: Tensor | None
) -> Tensor:
    """Return the embeddings ``(n, D)`` of the given classes and positions with the free ones replaced: ``(B, n, D)``."""
    x = x.expand(len(context), *x.shape)
    for role, values in ((CONTEXT, context), (NAME, name_tokens)):
        if values is None:
            continue
        free = prompts.roles == role
        slots = (free.cumsum(dim=1) - 1)[classes, positions]
        at = free[classes, positions].nonzero().squeeze(1)
        owners = classes[at] if values.shape[1] > 1 else torch.zeros_like(at)
        x = x.index_copy(1, at.to(x.device), values[:, owners, slots[at]].to(x.dtype))
    return x
