"""Tune the text features themselves, by a shift and a scale, to the views of images. No text tower is needed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

from tpt_lib.logits import unchecked_logits
from tpt_lib.methods.view_average import selected_rows
from tpt_lib.models.protocol import ClipLike
from tpt_lib.objectives import marginal_entropy, select_confident
from tpt_lib.tuning.descent import descend

Variant = Literal["shift", "scale", "both"]
Losses = Callable[[list[Tensor]], Tensor]
EPS, DECAY = 1e-8, 0.01  # of AdamW


@dataclass(frozen=True)
class TunedFeatures:
    """Text features of B images, the losses before and after tuning, the views used, and whether tuning was applied."""

    text: Float[Tensor, "b k e"]
    before: Float[Tensor, " b"]
    after: Float[Tensor, " b"]
    selected: Int[Tensor, "b m"]
    applied: Bool[Tensor, " b"]


def tune_features(
    model: ClipLike,
    views: Float[Tensor, "b n e"],
    text: Float[Tensor, "b k e"],
    *,
    variant: Variant,
    shared: bool,
    fraction: float,
    steps: int,
    lr: float,
    reselect: bool,
) -> TunedFeatures:
    """Minimize the marginal entropy of the confident views in a shift and a scale of the text features; see ``tps_predict``."""
    with torch.inference_mode(False), torch.enable_grad():
        views, text = views.detach().float().clone(), text.detach().clone()
        like = text[:, :1] if shared else text
        start = {"shift": torch.zeros_like(like), "scale": torch.ones_like(like)}
        names = ["shift", "scale"] if variant == "both" else [variant]
        first = select_confident(unchecked_logits(model, views, text), fraction=fraction)

        def moved(values: list[Tensor]) -> Tensor:
            now = dict(zip(names, values, strict=True))
            scaled = text * now["scale"] if "scale" in now else text
            return F.normalize(scaled + now["shift"] if "shift" in now else scaled, dim=-1)

        def losses(values: list[Tensor]) -> Tensor:
            features, kept = moved(values), first
            if reselect:
                kept = select_confident(unchecked_logits(model, views, features.detach()), fraction=fraction)
            return marginal_entropy(unchecked_logits(model, selected_rows(views, kept), features))

        before = [start[name] for name in names]
        values, applied = (one_step if steps == 1 else several_steps)(losses, before, steps, lr)
    with torch.inference_mode(False), torch.no_grad():
        return TunedFeatures(moved(values), losses(before), losses(values), first, applied)


def one_step(losses: Losses, before: list[Tensor], _steps: int, lr: float) -> tuple[list[Tensor], Tensor]:
    """Return the values after the first step of AdamW, which is closed form, and whether it was applied to each image."""
    leaves = [value.clone().requires_grad_() for value in before]
    found = losses(leaves)
    gradients = torch.autograd.grad(found.sum(), leaves)
    after = [(1 - lr * DECAY) * v - lr * g / (g.abs() + EPS) for v, g in zip(before, gradients, strict=True)]
    applied = found.detach().isfinite() & torch.stack([value.flatten(1).isfinite().all(dim=1) for value in after]).all(
        dim=0
    )
    return [torch.where(applied[:, None, None], a, b) for a, b in zip(after, before, strict=True)], applied


def several_steps(losses: Losses, before: list[Tensor], steps: int, lr: float) -> tuple[list[Tensor], Tensor]:
    """Return the same after any number of steps, by the loop that all methods share."""
    starts = [list(own) for own in zip(*before, strict=True)]
    leaves = [[value.clone().requires_grad_() for value in own] for own in starts]

    def stacked() -> list[Tensor]:
        return [torch.stack(parts) for parts in zip(*leaves, strict=True)]

    def gradients(_: int) -> tuple[Tensor, list[list[Tensor]]]:
        values = [value.detach().requires_grad_() for value in stacked()]
        found = losses(values)
        by_value = torch.autograd.grad(found.sum(), values)
        return found.detach(), [list(own) for own in zip(*by_value, strict=True)]

    optimizers = [torch.optim.AdamW(own, lr=lr, weight_decay=DECAY, eps=EPS) for own in leaves]
    _, applied = descend(leaves, starts, optimizers, range(steps), gradients)
    return [value.detach() for value in stacked()], applied
