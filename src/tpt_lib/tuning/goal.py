"""What tuning minimizes: an objective of the selected views' logits, plus a regularizer of the text features."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from tpt_lib.logits import unchecked_logits
from tpt_lib.models.protocol import ClipLike
from tpt_lib.objectives import marginal_entropy, select_confident
from tpt_lib.prediction import stack_indices
from tpt_lib.tuning.checks import check_scalar, check_selections, inner_function, unattached
from tpt_lib.types import Objective, Regularizer, Select


@dataclass(frozen=True)
class KeptViews:
    """The views of each image that the loss is computed on.

    Attributes:
        indices: which ones ``(B, M)``, -1 where an image has fewer than others.
        features: their features, ``(M, E)`` for each image: a tensor ``(B, M, E)``, or a list if the numbers differ.
        logits: their initial logits ``(M, K)``, given the same way.
        classes: the classes whose logits are computed again at each step ``(B, S)``; None for all of them.
    """

    indices: Int[Tensor, "b m"]
    features: Sequence[Tensor] | Tensor
    logits: Sequence[Tensor] | Tensor
    classes: Int[Tensor, "b s"] | None = None


@dataclass(frozen=True)
class Goal:
    """The functions that define what is minimized. The library's own take all images together, a caller's one at a time."""

    model: ClipLike
    objective: Objective
    regularizer: Regularizer | None
    select: Select

    @property
    def batched(self) -> bool:
        """Whether only functions of the library are called."""
        own = inner_function(self.select) is select_confident and self.objective is marginal_entropy
        return own and self.regularizer is None

    def keep(self, views: Float[Tensor, "b n e"], text: Float[Tensor, "b k e"]) -> KeptViews:
        """Select views of each image by their logits at the initial text features."""
        logits = unchecked_logits(self.model, views, text)
        if inner_function(self.select) is select_confident:
            indices = self.select(logits)
            return KeptViews(indices, _rows(views, indices), _rows(logits, indices))
        found = [self.select(one) for one in logits]
        check_selections(self.select, found, views.shape[1])
        if len({len(kept) for kept in found}) == 1:
            indices = torch.stack(found)
            return KeptViews(indices, _rows(views, indices), _rows(logits, indices))
        features, rows = ([own[kept] for own, kept in zip(each, found, strict=True)] for each in (views, logits))
        return KeptViews(stack_indices(found), features, rows)

    def plausible(
        self, views: Float[Tensor, "b n e"], text: Float[Tensor, "b k e"], kept: KeptViews, count: int
    ) -> Int[Tensor, "b s"]:
        """Return the classes with the largest softmax in any kept view or in row 0, in ascending order."""
        plain = unchecked_logits(self.model, views[:, :1], text)
        rows = [torch.cat(pair) for pair in zip(plain, kept.logits, strict=True)]
        return torch.stack([own.softmax(dim=-1).amax(dim=0).topk(count).indices.sort().values for own in rows])

    def losses(self, kept: KeptViews, text: Float[Tensor, "b k e"]) -> Float[Tensor, " b"]:
        """Return the loss of each image at its text features."""
        attached = text.requires_grad
        if isinstance(kept.features, Tensor):
            logits: Sequence[Tensor] | Tensor = unchecked_logits(self.model, kept.features, text)
        else:
            logits = [unchecked_logits(self.model, own, t) for own, t in zip(kept.features, text, strict=True)]
        if kept.classes is not None:
            logits = _with_classes(kept.logits, kept.classes, logits)
        if self.objective is marginal_entropy and isinstance(logits, Tensor):
            losses = marginal_entropy(logits)
        else:
            found = (self.objective(one) for one in logits)
            checked = [check_scalar("objective", self.objective, "logits", x, attached=attached) for x in found]
            losses = torch.stack(checked)
        if self.regularizer is None:
            return losses
        found = (self.regularizer(one) for one in text)
        added = [check_scalar("regularizer", self.regularizer, "text features", x, attached=attached) for x in found]
        return losses + torch.stack(added)

    def gradient(self, losses: Tensor, text: Tensor) -> Tensor:
        """Return the gradient of each image's loss in its text features."""
        (upstream,) = torch.autograd.grad(losses.sum(), text, allow_unused=True)
        if upstream is None:
            raise unattached("objective", self.objective, "logits")
        return upstream


def _rows(values: Tensor, indices: Tensor) -> Tensor:
    """Return the rows ``(B, M, …)`` of ``(B, N, …)`` at the indices ``(B, M)``."""
    return values.gather(1, indices.to(values.device)[..., None].expand(-1, -1, values.shape[-1]))


def _with_classes(
    initial: Sequence[Tensor] | Tensor, classes: Tensor, own: Sequence[Tensor] | Tensor
) -> Sequence[Tensor] | Tensor:
    """Return the initial logits ``(…, K)`` with those of some classes replaced."""
    if isinstance(initial, Tensor):
        assert isinstance(own, Tensor)
        return initial.scatter(-1, classes[:, None].expand_as(own), own)
    rows = zip(initial, classes, own, strict=True)
    return [before.scatter(1, at.expand_as(now), now) for before, at, now in rows]
