"""TENT (Wang et al., ICLR 2021): entropy minimization over the norms of a CLIP's image tower or of any classifier."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from tpt_lib.logits import unchecked_logits
from tpt_lib.methods.base import Needs, OnlineMethod, method
from tpt_lib.methods.memo import check_eval_mode, logits_of
from tpt_lib.methods.memo_clip import image_tower
from tpt_lib.methods.online import initial_features
from tpt_lib.methods.tent_norms import (
    has_batch_norms,
    in_one_row,
    in_shapes,
    norm_weights,
    tower,
    unique,
    use_batch_statistics,
)
from tpt_lib.methods.tune_weights import FreeWeights, Rows, adapt
from tpt_lib.models.module_clip import ModuleClip
from tpt_lib.models.protocol import ClipLike
from tpt_lib.models.structural_copy import without_graph
from tpt_lib.objectives import mean_entropy
from tpt_lib.prediction import Prediction, compared
from tpt_lib.prompts.class_prompts import ClassPrompts
from tpt_lib.types import kind_of

__all__ = ["TentState", "tent"]

NEEDS: tuple[Needs, ...] = ("images",)


@dataclass(frozen=True, eq=False)
class TentState:
    """The scales and shifts of all norms in one row ``(P,)``, Adam's moments of them ``(P,)``, and the steps so far."""

    weights: Float[Tensor, " p"]
    mean: Float[Tensor, " p"]
    square: Float[Tensor, " p"]
    steps: Float[Tensor, ""]


@method(name="tent", title="TENT", paper="Wang et al., ICLR 2021", needs=NEEDS, published="TENT", online=True)
def tent(*, steps: int = 1, online: bool = True, lr: float = 1e-3, chunk: int = 8) -> OnlineMethod[TentState]:
    r"""Return TENT: scales and shifts of norms that minimize the mean entropy of a batch of images.

    .. math:: \min_{\gamma, \beta} \frac 1B \sum_b \mathbf H(p(y \mid \mathbf x_b))

    ``init`` and ``step`` take a CLIP and its prompts, or a classifier in eval mode, from pixels ``(B, 3, H, W)`` to logits, and
    its class names. Layer norms and batch norms are tuned, in a CLIP those of the image tower. Batch norms use the
    statistics of the batch. The model is only read: the state holds what was learned.

    Convention: as published, a batch is predicted before the last step of its update, so with
    layer norms the first batch of a stream is zero-shot. With ``online=False`` it is predicted after that step.

    Args:
        steps: number of steps of Adam per batch (default 1).
        online: whether the weights, and Adam's moments, carry over to the next batch (default True). If False, each batch
            starts from the original weights; papers on CLIP then take 10 steps.
        lr: learning rate (default 1e-3).
        chunk: number of images whose graph is held at the same time (default 8). Affects speed and memory, not results. With
            batch norms all images pass together.

    Returns:
        The method. Its ``step`` takes preprocessed images ``(B, 3, H, W)`` and predicts a batch. Papers use 128 images.

    >>> found = tent()
    >>> prompts = tpt_lib.class_prompts(model, ["cat", "dog"])
    >>> state, prediction = found.step(model, prompts, found.init(model, prompts), torch.randn(2, 3, 224, 224))
    >>> prediction.logits.shape, int(state.steps)
    (torch.Size([2, 2]), 1)
    """
    if steps < 1 or chunk < 1:
        raise ValueError(f"tent: steps and chunk must be at least 1, but got {steps} and {chunk}")
    return OnlineMethod(_init, partial(_step, steps, online, lr, chunk), needs=NEEDS)


def smallest_batch(method: OnlineMethod[Any], model: ClipLike | nn.Module) -> int:
    """Return the smallest number of images that a step takes: 2 if the method is TENT and tunes batch norms, otherwise 1."""
    return 2 if method.init is _init and has_batch_norms(model) else 1


def _init(model: ClipLike | nn.Module, _: object) -> TentState:
    weights = in_one_row(list(unique(norm_weights(model)).values()))
    return TentState(weights, torch.zeros_like(weights), torch.zeros_like(weights), torch.zeros(()))


def _step(
    steps: int, online: bool, lr: float, chunk: int,
    model: ClipLike | nn.Module, prompts: ClassPrompts | Sequence[str], state: TentState, images: Tensor,
) -> tuple[TentState, Prediction]:  # fmt: skip
    _check_images(images)
    weights, start = norm_weights(model), state if online else _init(model, prompts)
    with torch.inference_mode(False), torch.enable_grad():
        images = without_graph(images)
        part, head, names = _subject(model, prompts, images, chunk)
        before = head(part.plain({}, images))
        if len(names) != before.shape[1]:
            raise ValueError(f"tent: there are {len(names)} names and {before.shape[1]} logits; give a name for each")
        use_batch_statistics(part)
        parts = in_shapes(weights, start.weights)
        free = FreeWeights.of([(name, parts[id(weight)]) for name, weight in weights])
        means, squares = ([x.clone() for x in in_shapes(weights, row).values()] for row in (start.mean, start.square))
        seen = before

        def adam(leaves: list[Tensor], *, lr: float) -> torch.optim.Optimizer:
            made = torch.optim.Adam(leaves, lr=lr)
            for leaf, mean, square in zip(leaves, means, squares, strict=True):
                made.state[leaf] = {"step": start.steps.clone(), "exp_avg": mean, "exp_avg_sq": square}
            return made

        def logits(_: object, outputs: Tensor) -> Tensor:
            nonlocal seen
            seen = head(outputs)
            return seen

        done = adapt(
            "tent", [part], logits, free,
            fraction=1.0, steps=steps, lr=lr, optimizer=adam, objective=mean_entropy,
        )  # fmt: skip
        found = seen.detach() if online else head(part.outputs(free.named, images))
    prediction = compared(
        names, torch.where(done.applied, found, before), before, tuned=done.applied.expand(len(images))
    )
    moved = TentState(in_one_row(free.leaves), in_one_row(means), in_one_row(squares), start.steps + steps)
    return (moved if online and done.applied else state), prediction


def _subject(
    model: ClipLike | nn.Module, prompts: ClassPrompts | Sequence[str], images: Tensor, chunk: int
) -> tuple[Rows, Callable[[Tensor], Tensor], tuple[str, ...]]:
    """Return the tuned part as a function of images, a function from its outputs to logits, and the class names."""
    if has_batch_norms(model):
        chunk = len(images)
        if chunk < 2:
            raise ValueError(
                "tent: batch norms need the statistics of 2 or more images, but got 1; pass larger batches"
            )
    if isinstance(model, ModuleClip):
        if not isinstance(prompts, ClassPrompts):
            raise TypeError(f"tent: a CLIP needs prompts from class_prompts, but got {type(prompts).__name__}")
        text = initial_features("tent", model, prompts)
        return image_tower(model, images, chunk, every=True), partial(_clip_logits, model, text), prompts.names
    classifier = tower(model)
    check_eval_mode("tent", classifier)
    rows = Rows(classifier, partial(logits_of, "tent"), images, chunk=chunk, prior=None, every=True)
    return rows, nn.Identity(), prompts.names if isinstance(prompts, ClassPrompts) else tuple(prompts)


def _clip_logits(model: ModuleClip, text: Tensor, features: Tensor) -> Tensor:
    return unchecked_logits(model, features, text)


def _check_images(images: Tensor) -> None:
    floats = isinstance(images, Tensor) and images.is_floating_point()
    if not floats or images.ndim != 4 or len(images) == 0:
        raise ValueError(
            f"tent: a step takes a batch of preprocessed images, floats (B, 3, H, W), but got {kind_of(images)}; "
            "views.preprocess makes one from a raw image"
        )
    if not images.isfinite().all():
        raise ValueError("tent: the images must be finite, but have NaN or infinite pixels; check their preprocessing")
