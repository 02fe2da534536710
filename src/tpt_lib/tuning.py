"""Test-time prompt tuning: the views of an image to a context tuned to it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, TypedDict

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from tpt_lib.descent import descend, over, warn_not_applied
from tpt_lib.features.check import are_unit
from tpt_lib.free_tokens import FreeTokens
from tpt_lib.goal import Goal
from tpt_lib.models.protocol import ClipLike
from tpt_lib.objectives import marginal_entropy, select_confident
from tpt_lib.prompts.class_prompts import ClassPrompts, conditional_context
from tpt_lib.text.encode import TextEncoder, open_encoder
from tpt_lib.text.initial import initial_text
from tpt_lib.tuning_checks import check_features, check_start
from tpt_lib.types import Objective, OptimizerFactory, Regularizer, Select

__all__ = ["TuneOptions", "Tuned", "tune_prompt"]

PullBack = Callable[[Tensor], list[Tensor]]


class TuneOptions(TypedDict, total=False):
    """The keywords of ``tune_prompt``, which every function that tunes a prompt takes."""

    context: Tensor | None
    objective: Objective
    regularizer: Regularizer | None
    select: Select
    steps: int
    lr: float
    optimizer: OptimizerFactory
    on_step: Callable[[int, Tensor, Tensor], None] | None
    layout: Literal["auto", "ragged", "padded"]


@dataclass(frozen=True, eq=False)
class Tuned:
    """What tuning found for one image; for a batch, every tensor has the batch dimension in front.

    Attributes:
        context: the tuned context, of the prompts' shape, float32.
        name_tokens: the tuned name tokens ``(K, M, D)`` where names are free, else None.
        text_features: normalized features of the tuned prompts ``(K, E)``.
        initial_features: the same before tuning.
        losses: the loss before each step, and after the last ``(steps + 1,)``.
        selected: indices of the views that the loss was computed on ``(M,)``; in a batch, -1 where an image has fewer.
        applied: False where a loss, a gradient or a text feature was not finite, at any step or after the last. The prompt
            of that image is left as it was.
    """

    context: Float[Tensor, "*bk l d"]
    name_tokens: Float[Tensor, "*b k m d"] | None
    text_features: Float[Tensor, "*b k e"]
    initial_features: Float[Tensor, "*b k e"]
    losses: Float[Tensor, "*b s"]
    selected: Int[Tensor, "*b kept"]
    applied: Bool[Tensor, "*b"]


def tune_prompt(
    model: ClipLike,
    prompts: ClassPrompts,
    image_features: Float[Tensor, "*b n e"],
    *,
    context: Float[Tensor, "*bk l d"] | None = None,
    objective: Objective = marginal_entropy,
    regularizer: Regularizer | None = None,
    select: Select = select_confident,
    steps: int = 1,
    lr: float = 5e-3,
    optimizer: OptimizerFactory = torch.optim.AdamW,
    on_step: Callable[[int, Tensor, Tensor], None] | None = None,
    layout: Literal["auto", "ragged", "padded"] = "auto",
) -> Tuned:
    r"""Tune the prompts' context to the views of one image, or of each of several images (section 3.2).

    .. math:: \mathbf p^* = \arg\min_{\mathbf p} \mathbf H(\tilde p{}_{\mathbf p}(y \mid X_{\mathrm{test}}))

    Views are selected once, at the initial context. Each image has its own context and optimizer; nothing carries over.

    Args:
        model: the model.
        prompts: where tuning starts; a CoCoOp context is first shifted by the feature of row 0, the plain image.
        image_features: normalized features of the views ``(N, E)``, or of the views of several images ``(B, N, E)``.
        context: another start than the prompts' own, ``(…, *prompts.context.shape)``. The paper's code fed CoCoOp's network
            the feature as the model gives it, not normalized: ``conditional_context(prompts, model.encode_image(x)[0])``.
        objective: function from the selected views' logits ``(M, K)`` to a scalar (default ``marginal_entropy``).
        regularizer: function from the text features ``(K, E)`` to a scalar that is added to the objective.
        select: function from the logits of all views ``(N, K)`` to the indices ``(M,)`` of those to use.
        steps: number of steps (default 1); 0 leaves the prompt as it is.
        lr: learning rate (default 5e-3).
        optimizer: called as ``optimizer([context], lr=lr)``; AdamW's other settings are PyTorch's, as in the paper's code.
        on_step: called after each step with its number, the losses before it ``(B,)`` and the new contexts ``(B, …)``.
        layout: that of ``encode_prompts``. With ``"padded"``, which is the default on an accelerator, the gradients of all
            images also pass the text tower together. Affects speed and memory, not results.

    Returns:
        The tuned context and its text features.

    >>> prompts = tpt_lib.class_prompts(model, ["cat", "dog", "red panda"])
    >>> views = torch.nn.functional.normalize(torch.randn(64, 256), dim=-1)
    >>> tuned = tune_prompt(model, prompts, views)
    >>> tuned.selected.shape, bool(tuned.losses[1] < tuned.losses[0])
    (torch.Size([6]), True)
    """
    check_start(prompts, image_features, steps)
    goal = Goal(model, objective, regularizer, select)
    with torch.inference_mode(False), torch.enable_grad():
        views = image_features.detach().float().clone().reshape(-1, *image_features.shape[-2:])
        unit = are_unit(views)
        if views.device.type == "cpu" or not goal.batched:  # elsewhere it is read with the other flags, at the end
            check_features(bool(unit), views)
        if context is None:
            start = conditional_context(prompts, views[:, 0])
        else:
            start = context.detach().float().expand(len(views), *prompts.context.shape)
        encoder = open_encoder(model, prompts, layout=layout)
        names = prompts.name_tokens
        free = [start] if names is None else [start, names.expand(len(views), *names.shape)]
        tokens = FreeTokens.of(free, optimizer, lr)
        shared = context is None and prompts.meta_net is None
        first = _initial(encoder, len(views)) if shared else _current(encoder, tokens)
        untuned = first[0].detach()
        kept = goal.keep(views, untuned)

        def gradients(step: int) -> tuple[Tensor, list[list[Tensor]]]:
            text, pull_back = first if step == 0 else _current(encoder, tokens)
            text = text.detach().requires_grad_()
            losses = goal.losses(kept, text)
            return losses.detach(), tokens.of_each(pull_back(goal.gradient(losses, text)))

        def report(step: int, losses: Tensor) -> None:
            if on_step is not None:
                on_step(step, losses, tokens.values[0].clone())

        losses, applied = descend(
            tokens.leaves, tokens.before, tokens.optimizers, range(steps), gradients, report, stacked=tokens.stacked
        )
    with torch.inference_mode(False), torch.no_grad():
        text = _current(encoder, tokens)[0] if steps else untuned
        applied = applied & text.isfinite().flatten(1).all(dim=1)
        after = goal.losses(kept, torch.where(over(applied, text), text, untuned))
        if steps:
            applied = applied & after.isfinite()
            after = torch.where(applied, after, losses[0])
        found = tokens.where(applied)
        tuned = Tuned(
            context=found[0],
            name_tokens=found[1] if len(found) > 1 else None,
            text_features=torch.where(over(applied, text), text, untuned),
            initial_features=untuned,
            losses=torch.stack([*losses, after], dim=1),
            selected=kept.indices,
            applied=applied,
        )
    *ok, all_unit = torch.cat([applied, unit[None]]).tolist()
    check_features(all_unit, views)
    warn_not_applied("tune_prompt", torch.tensor(ok), lr=lr)
    return tuned if image_features.ndim == 3 else _only(tuned)


def _initial(encoder: TextEncoder, images: int) -> tuple[Tensor, PullBack]:
    """Return text features ``(B, K, E)`` before the first step, and what takes gradients in them to the tokens."""
    initial = initial_text(encoder)
    return initial.features.expand(images, *initial.features.shape), initial.gradients_of_each


def _current(encoder: TextEncoder, tokens: FreeTokens) -> tuple[Tensor, PullBack]:
    """Return the same at the images' own tokens."""
    values = tokens.values
    text = encoder(values[0], values[1] if len(values) > 1 else None)
    return text, lambda upstream: list(torch.autograd.grad(text, values, upstream))


def _only(tuned: Tuned) -> Tuned:
    first: dict[str, Any] = {name: None if value is None else value[0] for name, value in vars(tuned).items()}
    return Tuned(**first)
