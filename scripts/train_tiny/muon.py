"""Muon: momentum with orthogonalized steps, for convolution kernels, which torch's own Muon does not take."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor


class Muon(torch.optim.Optimizer):
    """Muon with steps of the root mean square that AdamW's have at the same rate (0.2 of it)."""

    def __init__(self, params: Iterable[Tensor], lr: float, weight_decay: float, momentum: float = 0.9) -> None:
        super().__init__(params, {"lr": lr, "weight_decay": weight_decay, "momentum": momentum})

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:  # noqa: ARG002
        for group in self.param_groups:
            for weight in group["params"]:
                mean = self.state[weight].setdefault("mean", torch.zeros_like(weight))
                mean.lerp_(weight.grad, 1 - group["momentum"])
                ahead = weight.grad.lerp(mean, group["momentum"]).flatten(1)
                weight.mul_(1 - group["lr"] * group["weight_decay"])
                step = orthogonal(ahead).reshape(weight.shape)
                weight.add_(step, alpha=-0.2 * group["lr"] * max(ahead.shape) ** 0.5)


def orthogonal(matrix: Tensor) -> Tensor:
    """Return the nearest matrix with singular values about 1, by five rounds of the Newton-Schulz iteration."""
    wide = matrix if matrix.shape[0] <= matrix.shape[1] else matrix.T
    x = wide / (wide.norm() + 1e-7)
    for _ in range(5):
        square = x @ x.T
        x = 3.4445 * x + (2.0315 * square @ square - 4.775 * square) @ x
    return x if wide is matrix else x.T
