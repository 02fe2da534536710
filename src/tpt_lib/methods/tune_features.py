"""Tune the text features themselves, by a shift and a scale, to the views of images. No text tower is needed."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from tpt_lib.logits import unchecked_logits
from tpt_lib.methods.moved_features import Moving, Variant, one_step
from tpt_lib.methods.view_average import selected_rows
from tpt_lib.models.protocol import ClipLike
from tpt_lib.models.structural_copy import without_graph
from tpt_lib.objectives import marginal_entropy, select_confident
from tpt_lib.tuning.descent import descend


@dataclass(frozen=True)
class TunedFeatures:
    """Text features of B images, the logits of views before, the losses, the views used, and whether tuning was applied."""

    text: Float[Tensor, "b k e"]
    logits: Float[Tensor, "b n k"]
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
    starts = {"shift": 0.0, "scale": 1.0}
    starts = starts if variant == "both" else {variant: starts[variant]}
    with torch.inference_mode(False), torch.no_grad():
        views = without_graph(views)
        logits = unchecked_logits(model, views, text)
        selected = select_confident(logits, fraction=fraction)
        moving = Moving(model, views, text, logits, selected, starts, shared, fraction if reselect else None)
        values, applied = (one_step if steps == 1 else several_steps)(moving, steps, lr)
        after, before = moving.text_of(values), marginal_entropy(selected_rows(logits, selected))
        return TunedFeatures(after, logits, before, moving.losses(after), selected, applied)


def several_steps(moving: Moving, steps: int, lr: float) -> tuple[list[Tensor], Bool[Tensor, " b"]]:
    """Return what ``one_step`` does after any number of steps, by the loop that all methods share."""
    leaves = [value.requires_grad_() for value in moving.start()]

    def gradients(_: int) -> tuple[Tensor, list[list[Tensor]]]:
        with torch.enable_grad():
            found = moving.losses(moving.text_of(leaves))
            return found, [list(torch.autograd.grad(found.sum(), leaves))]

    optimizer = torch.optim.AdamW(leaves, lr=lr)
    _, applied = descend([leaves], [moving.start()], [optimizer], range(steps), gradients, stacked=True)
    return leaves, applied
