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
    *,
    stacked: bool = False,
) -> tuple[list[Tensor], Bool[Tensor, " b"]]:
    """Minimize B independent losses, each over its own leaves with its own optimizer, one step per item of ``steps``.

    Convention: if a loss, a gradient or the result of a step is not finite, the leaves are reset to their values ``before``.
    The loop does not synchronize with an accelerator.

    Args:
        leaves: the tensors of each problem, which change in place.
        before: their values before the first step.
        optimizers: one optimizer for each problem's leaves.
        steps: arguments of ``gradients``, one per step, such as ``range(steps)`` or batches of data.
        gradients: returns the losses ``(B,)`` and the gradients of each problem's leaves, None where one is not used.
        on_step: called after each step with its item and the losses before it.
        stacked: whether all problems share one list of leaves and one optimizer, which must be elementwise. Leaves, values
            and gradients then have the problems as their first dimension, and the outer sequences have one item.

    Returns:
        The losses ``(B,)`` before each step, and whether each problem's steps were applied ``(B,)``.
    """
    problems = len(leaves[0][0]) if stacked else len(leaves)
    applied = torch.ones(problems, dtype=torch.bool, device=leaves[0][0].device)
    history = []
    for step in steps:
        losses, found = gradients(step)
        for own, grads, optimizer in zip(leaves, found, optimizers, strict=True):
            for leaf, gradient in zip(own, grads, strict=True):
                leaf.grad = gradient
            optimizer.step()
        applied &= losses.isfinite() & _finite(found, applied, stacked)
        history.append(losses)
        if on_step is not None:
            on_step(step, losses)
    with torch.no_grad():
        applied &= _finite([[leaf for leaf in own if leaf.grad is not None] for own in leaves], applied, stacked)
        for own, initial, ok in zip(leaves, before, applied[None] if stacked else applied, strict=True):
            for leaf, value in zip(own, initial, strict=True):
                leaf.copy_(torch.where(over(ok, leaf), leaf, value))
    return history, applied


def over(flags: Bool[Tensor, "*b"], values: Tensor) -> Tensor:
    """Return flags of the leading dimensions of ``values`` in a shape that broadcasts with them."""
    return flags.reshape(flags.shape + (1,) * (values.ndim - flags.ndim))


def _finite(groups: Sequence[Sequence[Tensor | None]], like: Tensor, stacked: bool) -> Tensor:
    """Return for each problem whether all its tensors are finite ``(B,)``."""
    if stacked:
        return _all_finite(groups[0], like)
    return torch.stack([_all_finite(own, like[0]) for own in groups])


def _all_finite(tensors: Sequence[Tensor | None], like: Tensor) -> Tensor:
    flags = [tensor.isfinite().flatten(like.ndim).all(dim=-1) for tensor in tensors if tensor is not None]
    return torch.stack(flags).all(dim=0) if flags else torch.ones_like(like)


def warn_not_applied(caller: str, applied: Tensor, *, lr: float | None = None) -> None:
    """Warn if any problem's steps were not applied, with the learning rate if it may be the reason."""
    if not applied.all():
        hint = "" if lr is None else f"; the learning rate is {lr:g}, and a smaller one may help"
        warnings.warn(
            f"{caller}: a loss or gradient was not finite in {int((~applied).sum())} of {len(applied)} cases; those are left "
            f"unchanged{hint}",
            stacklevel=3,
        )
