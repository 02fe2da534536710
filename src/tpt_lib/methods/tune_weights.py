"""Entropy minimization over a module's weights, which MEMO, the parameter groups of a CLIP and TENT share.

The caller's module is only read: everything runs on a structural copy, through ``torch.func.functional_call`` with weights of
its own. Memory does not grow with the number of rows: outputs are computed first, without a graph; then the gradient of the
loss in the outputs; then that is pulled back through the module a few rows at a time.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.modules.batchnorm import _BatchNorm

from tpt_lib.models.structural_copy import mirror
from tpt_lib.objectives import marginal_entropy, select_confident
from tpt_lib.prediction import Prediction
from tpt_lib.tuning.descent import descend, warn_not_applied
from tpt_lib.types import Objective, OptimizerFactory


@dataclass(frozen=True, eq=False)
class FreeWeights:
    """Float32 copies of a module's weights that are free to change; a weight with two names has one copy."""

    named: dict[str, Tensor]
    leaves: list[Tensor]
    before: list[Tensor]

    @classmethod
    def of(cls, parameters: list[tuple[str, Tensor]]) -> FreeWeights:
        unique = {id(weight): weight.detach() for _, weight in parameters}
        leaves = {at: weight.float().clone().requires_grad_() for at, weight in unique.items()}
        named = {name: leaves[id(weight)] for name, weight in parameters}
        return cls(named, list(leaves.values()), list(unique.values()))


@dataclass(frozen=True, eq=False)
class Adapted:
    """The result of ``adapt``: the views it used, the loss before the first step, and whether everything was finite."""

    selected: Tensor | None
    loss: Tensor | None
    applied: Tensor

    def prediction(self, names: tuple[str, ...], before: Tensor, after: Tensor) -> Prediction:
        """Return a prediction from float32 logits before and after the steps."""
        return Prediction(
            names=names,
            logits=torch.where(self.applied, after, before).detach(),
            before=Prediction(names, before),
            tuned=self.applied if self.loss is not None else torch.zeros_like(self.applied),
            loss_before=self.loss,
            selected=self.selected,
        )


class Rows(nn.Module):
    """A function of a module that treats its rows one by one, batch norms aside, on a copy whose weights are replaced."""

    def __init__(
        self,
        module: nn.Module,
        function: Callable[[Any, Tensor], Tensor],
        rows: Tensor,
        *,
        chunk: int,
        prior: float | None,
        every: bool = False,
    ) -> None:
        super().__init__()
        self.module = mirror(module, {})
        for part in self.module.modules():  # some modules write to their buffers
            part._buffers = {name: None if buffer is None else buffer.clone() for name, buffer in part._buffers.items()}
        self.function, self.rows, self.chunk, self.prior, self.every = function, rows, chunk, prior, every
        self.norms = [] if prior is None else _norms(self.module)

    def forward(self, rows: Tensor) -> Tensor:
        return self.function(self.module, rows)

    def run(self, free: dict[str, Tensor], rows: Tensor) -> Tensor:
        own = dict(self.module.named_parameters(remove_duplicate=False))
        weights = {f"module.{name}": leaf.to(own[name].dtype) for name, leaf in free.items()}
        return functional_call(self, weights, (rows,))

    def plain(self, free: dict[str, Tensor], rows: Tensor) -> Tensor:
        with torch.no_grad():
            return torch.cat([self.run(free, part) for part in rows.split(self.chunk)])

    def outputs(self, free: dict[str, Tensor], rows: Tensor) -> Tensor:
        """Compute without a graph. If batch norms are mixed, all rows pass together, and the norms keep their statistics."""
        if not self.norms:
            return self.plain(free, rows)
        seen: set[int] = set()
        handles = [
            norm.register_forward_pre_hook(_mixing(mean, var, self.prior, seen)) for norm, mean, var in self.norms
        ]
        try:
            with torch.no_grad():
                return self.run(free, rows)
        finally:
            for handle in handles:
                handle.remove()

    def add_gradients(self, free: dict[str, Tensor], leaves: list[Tensor], upstream: Tensor) -> None:
        """Pull the gradient in the outputs back, and add it to the leaves' gradients. Rows where it is 0 are skipped, unless
        ``every`` row counts."""
        used = torch.arange(len(upstream), device=upstream.device)
        at = used if self.every else upstream.any(dim=1).nonzero().squeeze(1)
        for part in at.split(self.chunk) if len(at) else ():
            found = torch.autograd.grad(
                self.run(free, self.rows[part.to(self.rows.device)]), leaves, upstream[part], allow_unused=True
            )
            for leaf, gradient in zip(leaves, found, strict=True):
                _add_gradient(leaf, gradient)


def adapt(
    caller: str,
    parts: list[Rows],
    head: Callable[..., Tensor],
    free: FreeWeights,
    *,
    fraction: float,
    steps: int,
    lr: float,
    optimizer: OptimizerFactory,
    objective: Objective = marginal_entropy,
) -> Adapted:
    """Minimize the objective of ``head(weights, *outputs of the parts)`` over the free weights, which change in place."""
    selected: Tensor | None = None

    def gradients(_: int) -> tuple[Tensor, list[list[Tensor | None]]]:
        nonlocal selected
        for leaf in free.leaves:
            leaf.grad = None
        ends = [part.outputs(free.named, part.rows).requires_grad_() for part in parts]
        logits = head(free.named, *ends)
        if selected is None:
            selected = select_confident(logits, fraction=fraction)
        loss = objective(logits[selected])
        found = torch.autograd.grad(loss, [*ends, *free.leaves], allow_unused=True)
        for leaf, gradient in zip(free.leaves, found[len(ends) :], strict=True):
            _add_gradient(leaf, gradient)
        for part, upstream in zip(parts, found, strict=False):
            part.add_gradients(free.named, free.leaves, upstream)
        return loss.detach()[None], [[leaf.grad for leaf in free.leaves]]

    losses, applied = descend([free.leaves], [free.before], [optimizer(free.leaves, lr=lr)], range(steps), gradients)
    warn_not_applied(caller, applied)
    return Adapted(selected, losses[0][0] if losses else None, applied[0])


def named_weights(module: nn.Module) -> list[tuple[str, Tensor]]:
    """Return the floating-point parameters by all their names in a structural copy, which unwraps ``torch.compile``."""
    pairs = module.named_parameters(remove_duplicate=False)
    return [(name.replace("_orig_mod.", ""), weight) for name, weight in pairs if weight.is_floating_point()]


def _norms(module: nn.Module) -> list[tuple[nn.Module, Tensor, Tensor]]:
    """Return the batch norms with their running means and variances."""
    norms: Any = [part for part in module.modules() if isinstance(part, _BatchNorm)]
    if any(norm.running_mean is None for norm in norms):
        raise ValueError(
            "memo_predict: a batch norm of the classifier has no running statistics (track_running_stats=False), so there "
            "is nothing to mix the batch's with; pass prior=None and chunk= the number of views"
        )
    return [(norm, norm.running_mean, norm.running_var) for norm in norms]


def _mixing(mean: Tensor, var: Tensor, prior: float | None, seen: set[int]) -> Callable[[Any, Any], None]:
    assert prior is not None

    def mixed(running: Tensor, batch: Tensor) -> Tensor:
        return ((prior * running.float() + batch) / (prior + 1)).to(running.dtype)

    def hook(norm: Any, inputs: tuple[Tensor, ...]) -> None:
        if id(norm) in seen:
            raise ValueError(
                "memo_predict: a batch norm of the classifier is used twice in one pass, but can keep the statistics of "
                "only one; pass prior=None"
            )
        seen.add(id(norm))
        x = inputs[0].float()
        if x.numel() > x.shape[1]:  # one value has no variance
            batch_var, batch_mean = torch.var_mean(x, dim=[d for d in range(x.ndim) if d != 1])
            norm.running_mean, norm.running_var = mixed(mean, batch_mean), mixed(var, batch_var)
        else:
            norm.running_mean, norm.running_var = mean, var

    return hook


def _add_gradient(leaf: Tensor, gradient: Tensor | None) -> None:
    if gradient is not None:
        leaf.grad = (
            gradient.clone() if leaf.grad is None else leaf.grad.add_(gradient)
        )  # two gradients may share memory
