"""Text features moved by a shift and a scale, and the first step of AdamW to find both, in closed form."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

from tpt_lib.logits import unchecked_logits
from tpt_lib.methods.view_average import selected_rows
from tpt_lib.models.protocol import ClipLike
from tpt_lib.objectives import marginal_entropy, marginal_entropy_gradient, select_confident
from tpt_lib.tuning.descent import over

Variant = Literal["shift", "scale", "both"]
EPS, DECAY = 1e-8, 0.01  # the defaults of AdamW


@dataclass(frozen=True)
class Moving:
    """The marginal entropy of selected views of B images, as a function of a shift and a scale of unit text features."""

    model: ClipLike
    views: Float[Tensor, "b n e"]
    text: Float[Tensor, "b k e"]
    logits: Float[Tensor, "b n k"]  # before tuning
    selected: Int[Tensor, "b m"]
    starts: dict[str, float]  # the initial values of "shift" and "scale", if they are tuned
    shared: bool
    reselect: float | None  # share of the views to select at every step; None to select them once

    def start(self) -> list[Tensor]:
        like = self.text[:, :1] if self.shared else self.text
        return [torch.full_like(like, value) for value in self.starts.values()]

    def text_of(self, values: list[Tensor]) -> Float[Tensor, "b k e"]:
        now = dict(zip(self.starts, values, strict=True))
        scaled = self.text * now["scale"] if "scale" in now else self.text
        return F.normalize(scaled + now["shift"] if "shift" in now else scaled, dim=-1)

    def losses(self, text: Float[Tensor, "b k e"]) -> Float[Tensor, " b"]:
        kept = self.selected
        if self.reselect is not None:
            kept = select_confident(unchecked_logits(self.model, self.views, text), fraction=self.reselect)
        return marginal_entropy(unchecked_logits(self.model, selected_rows(self.views, kept), text))


def one_step(moving: Moving, _steps: int, lr: float) -> tuple[list[Tensor], Bool[Tensor, " b"]]:
    r"""Return the values after the first step of AdamW, and whether it was applied to each image.

    With the gradient :math:`G` in the normalized features, that in the shift is :math:`g = G - (G \cdot \mathbf t)\,\mathbf t`
    and that in the scale :math:`g \odot \mathbf t`. Works in place, to allocate few tensors as large as the text features.
    """
    logits, views = (selected_rows(all_views, moving.selected) for all_views in (moving.logits, moving.views))
    in_logits = marginal_entropy_gradient(logits)
    along = (in_logits * (logits - moving.model.logit_bias)).sum(dim=-2)[..., None]
    in_shift = (moving.model.logit_scale * in_logits).mT @ views
    in_shift.addcmul_(along, moving.text, value=-1)
    gradients = [in_shift * moving.text if name == "scale" else in_shift for name in moving.starts]
    values, applied = [], in_logits.new_ones(len(in_logits), dtype=torch.bool)
    for gradient, start in zip(gradients, moving.starts.values(), strict=True):
        gradient = gradient.sum(dim=1, keepdim=True) if moving.shared else gradient
        values.append(gradient.div_(gradient.abs().add_(EPS)).mul_(-lr).add_((1 - lr * DECAY) * start))
        applied = applied & torch.linalg.vector_norm(values[-1], ord=torch.inf, dim=(1, 2)).isfinite()
    for value, start in zip(values, moving.starts.values(), strict=True):
        value.masked_fill_(~over(applied, value), start)
    return values, applied
