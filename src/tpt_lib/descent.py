"""The one optimization loop, which TPT, Bongard problems, MEMO and CoOp share."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

import torch
from jaxtyping import Bool
from torch import Tensor

T = TypeVar("T")


def descend(
    leaves: Sequence[Sequence[Tensor]],
    before: Sequence[Sequence[Tensor]],
    optimizers: Sequence[torch.optim.Optimizer],
    steps: Iterable[T],
    gradients: Callable[[T], tuple[Tensor, Sequence[Sequence[Tensor | None]]]],
    on_step: Callable[[T, Tensor], None] | None = None,
) -> tuple[list[Tensor], Bool[Tensor, " b"]]:
    """Minimize B independent losses, each over its own leaves with its own optimizer, one step for each item of ``steps``.

    Convention: where a loss, a gradient or what a step made is not finite, the leaves get back their values ``before``. There
    is no synchronization with an accelerator in the loop.

    Args:
        leaves: the tensors of each problem, which change in place.
        before: their values before the first step.
        optimizers: an optimizer of each problem's leaves.
        steps: what ``gradients`` is called with, such as ``range(steps)`` or batches of data.
        gradients: returns the losses ``(B,)`` and the gradients of each problem's leaves, None where one is not used.
        on_step: called after each step with its item and the losses before it.

    Returns:
        The losses ``(B,)`` before each step, and whether each problem's steps were applied ``(B,)``.
    """
    applied = torch.ones(len(leaves), dtype=torch.bool, device=leaves[0][0].device)
    history = []
    for step in steps:
        losses, found = gradients(step)
        for own, grads, optimizer in zip(leaves, found, optimizers, strict=True):
            for leaf, gradient in zip(own, grads, strict=True):
                leaf.grad = gradient
            optimizer.step()
        applied &= losses.isfinite() & torch.stack([_all_finite(grads, applied) for grads in found])
        history.append(losses)
        if on_step is not None:
            on_step(step, losses)
    with torch.no_grad():
        used = [[leaf for leaf in own if leaf.grad is not None] for own in leaves]
        applied &= torch.stack([_all_finite(own, applied) for own in used])
        for own, initial, ok in zip(leaves, before, applied, strict=True):
            for leaf, value in zip(own, initial, strict=True):
                leaf.copy_(torch.where(ok, leaf, value.to(leaf.dtype)))
    return history, applied


def _all_finite(tensors: Sequence[Tensor | None], like: Tensor) -> Tensor:
    flags = [tensor.isfinite().all() for tensor in tensors if tensor is not None]
    return torch.stack(flags).all() if flags else torch.ones_like(like[0])


def warn_not_applied(caller: str, applied: Tensor, *, lr: float | None = None) -> None:
    """Warn if any problem's steps were not applied, with the learning rate if it may be the reason."""
    if not applied.all():
        hint = "" if lr is None else f"; the learning rate is {lr:g}, and a smaller one may help"
        warnings.warn(
            f"{caller}: a loss or gradient was not finite in {int((~applied).sum())} of {len(applied)} cases; what was to be "
            f"tuned there is left as it was{hint}",
            stacklevel=3,
        )
