"""Test-time prompt tuning: tune a context to the views of an image."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, TypedDict

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from tpt_lib.features.check import are_unit
from tpt_lib.models.protocol import ClipLike
from tpt_lib.objectives import marginal_entropy, select_confident
from tpt_lib.prompts.class_prompts import ClassPrompts, conditional_context
from tpt_lib.text.encode import LayoutChoice, TextEncoder, open_encoder
from tpt_lib.text.initial import initial_text, start_features
from tpt_lib.tuning.checks import check_features, check_start
from tpt_lib.tuning.descent import descend, over, warn_not_applied
from tpt_lib.tuning.free_tokens import FreeTokens
from tpt_lib.tuning.goal import Goal, KeptViews
from tpt_lib.tuning.shortlist import Shortlist, check_shortlist
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
    layout: LayoutChoice
    shortlist: int | None


@dataclass(frozen=True, eq=False)
class Tuned:
    """The result of tuning for one image; for a batch, every tensor has the batch dimension in front.

    Attributes:
        context: the tuned context, of the prompts' shape, float32.
        name_tokens: the tuned name tokens ``(K, M, D)`` where names are free, else None.
        text_features: normalized features of the tuned prompts ``(K, E)``.
        initial_features: the same before tuning.
        losses: the loss before each step and after the last ``(steps + 1,)``.
        selected: indices of the views that the loss was computed on ``(M,)``; in a batch, padded with -1 if an image has fewer.
        applied: False where a loss, a gradient or a text feature was not finite, at any step or after the last. The prompt
            of that image is left as it was.
        shortlist: the classes that were tuned ``(S,)``, in ascending order; None if all were.
    """

    context: Float[Tensor, "*bk l d"]
    name_tokens: Float[Tensor, "*b k m d"] | None
    text_features: Float[Tensor, "*b k e"]
    initial_features: Float[Tensor, "*b k e"]
    losses: Float[Tensor, "*b s"]
    selected: Int[Tensor, "*b kept"]
    applied: Bool[Tensor, "*b"]
    shortlist: Int[Tensor, "*b listed"] | None = None


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
    layout: LayoutChoice = "auto",
    shortlist: int | None = None,
) -> Tuned:
    r"""Tune the prompts' context to the views of one image, or of each of several images (section 3.2).

    .. math:: \mathbf p^* = \arg\min_{\mathbf p} \mathbf H(\tilde p{}_{\mathbf p}(y \mid X_{\mathrm{test}}))

    Views are selected once, at the initial context. Each image has its own context and optimizer; nothing carries over.

    Args:
        model: the model.
        prompts: where tuning starts; a CoCoOp context is first shifted by the feature of row 0, the plain image.
        image_features: normalized features of the views ``(N, E)``, or of the views of several images ``(B, N, E)``.
        context: initial context ``(…, *prompts.context.shape)`` (default None: the prompts' own). The paper's code gave
            CoCoOp's network the model's feature, not normalized: ``conditional_context(prompts, model.encode_image(x)[0])``.
        objective: function from the selected views' logits ``(M, K)`` to a scalar (default ``marginal_entropy``).
        regularizer: function from the text features ``(K, E)`` to a scalar that is added to the objective (default None).
        select: function from the logits of all views ``(N, K)`` to the indices ``(M,)`` of those to use (default
            ``select_confident``).
        steps: number of steps (default 1); 0 leaves the prompt as it is.
        lr: learning rate (default 5e-3).
        optimizer: called as ``optimizer([context], lr=lr)`` (default AdamW, with PyTorch's other settings, as in the paper's
            code).
        on_step: called after each step with its number, the losses before it ``(B,)`` and the new contexts ``(B, …)`` (default
            None).
        layout: that of ``encode_prompts``. With ``"padded"``, which is the default on an accelerator, the gradients of all
            images also pass the text tower together. Affects speed and memory, not results.
        shortlist: number of classes to tune, for thousands of classes (default None: all). They are those with the largest
            softmax in any kept view or in row 0, at the initial context. The loss uses the initial logits of all others, and
            their features do not change, so results are approximate. A ``regularizer`` is then given the features of these
            classes, and must have ``regularizer.works_on_part = True``.

    Returns:
        The tuned context and its text features.

    Raises:
        ValueError: if prompts, features, steps or shortlist cannot be used, or a given function returns a wrong value.
        TypeError: if ``optimizer`` does not return an optimizer.

    >>> prompts = tpt_lib.class_prompts(model, ["cat", "dog", "red panda"])
    >>> views = torch.nn.functional.normalize(torch.randn(64, 256), dim=-1)
    >>> tuned = tune_prompt(model, prompts, views)
    >>> tuned.selected.shape, bool(tuned.losses[1] < tuned.losses[0])
    (torch.Size([6]), True)
    """
    check_start(prompts, image_features, steps)
    check_shortlist(shortlist, len(prompts.names), regularizer)
    goal = Goal(model, objective, regularizer, select)
    with torch.inference_mode(False), torch.enable_grad():
        views = image_features.detach().float().clone().reshape(-1, *image_features.shape[-2:])
        unit = are_unit(views)
        if views.device.type == "cpu" or not goal.batched:  # elsewhere the flag is read with the others, at the end
            check_features(bool(unit), views)
        encoder = open_encoder(model, prompts, layout=layout)
        start = _start(prompts, views, context)
        shared = context is None and prompts.meta_net is None
        if shortlist is None:
            task = _of_all_classes(goal, encoder, views, start, FreeTokens.of(start, optimizer, lr), shared=shared)
        else:
            untuned = start_features(model, prompts, views) if shared else _without_graph(encoder, start[0])
            kept = goal.keep(views, untuned)
            listed = Shortlist.of(encoder, goal.plausible(views, untuned, kept, shortlist))
            kept = replace(kept, classes=listed.classes)
            tokens = FreeTokens.of([listed.take(part) if part.ndim == 4 else part for part in start], optimizer, lr)
            task = Task(goal, kept, start, tokens, untuned, _current(listed, tokens), listed, listed)
        tuned = _minimize(task, steps, on_step)
    *ok, all_unit = torch.cat([tuned.applied, unit[None]]).tolist()
    check_features(all_unit, views)
    warn_not_applied("tune_prompt", torch.tensor(ok), lr=lr)
    return tuned if image_features.ndim == 3 else _only(tuned)


@dataclass(frozen=True)
class Task:
    """What is minimized, over which tokens, from where.

    Attributes:
        goal: the functions that say what is minimized.
        kept: the views that the loss is computed on.
        start: the tokens of all classes before the first step, each with the images in front.
        tokens: those that are tuned; with a shortlist, where tokens belong to classes, those of its classes.
        untuned: text features of all classes before the first step ``(B, K, E)``.
        first: the text features that are tuned, with a graph, before the first step.
        encode: a function from tokens to the text features that are tuned.
        listed: the shortlist, None if all classes are tuned.
    """

    goal: Goal
    kept: KeptViews
    start: list[Tensor]
    tokens: FreeTokens
    untuned: Float[Tensor, "b k e"]
    first: tuple[Tensor, PullBack]
    encode: TextEncoder | Shortlist
    listed: Shortlist | None = None

    def of_all(self, before: Tensor, own: Tensor) -> Tensor:
        """Return values of all classes from those of the tuned ones. Values that belong to no class are returned unchanged."""
        return own if self.listed is None or before.shape == own.shape else self.listed.put(before, own)


def _of_all_classes(
    goal: Goal, encoder: TextEncoder, views: Tensor, start: list[Tensor], tokens: FreeTokens, *, shared: bool
) -> Task:
    first = _initial(encoder, len(views)) if shared else _current(encoder, tokens)
    untuned = first[0].detach()
    return Task(goal, goal.keep(views, untuned), start, tokens, untuned, first, encoder)


def _minimize(task: Task, steps: int, on_step: Callable[[int, Tensor, Tensor], None] | None) -> Tuned:
    """Take the steps, and keep their results where everything is finite."""
    goal, kept, tokens = task.goal, task.kept, task.tokens
    own_untuned = task.first[0]

    def gradients(step: int) -> tuple[Tensor, list[list[Tensor]]]:
        text, pull_back = task.first if step == 0 else _current(task.encode, tokens)
        text = text.detach().requires_grad_()
        losses = goal.losses(kept, text)
        return losses.detach(), tokens.of_each(pull_back(goal.gradient(losses, text)))

    def report(step: int, losses: Tensor) -> None:
        if on_step is not None:
            on_step(step, losses, task.of_all(task.start[0], tokens.values[0]).detach().clone())

    losses, applied = descend(
        tokens.leaves, tokens.before, tokens.optimizers, range(steps), gradients, report, stacked=tokens.stacked
    )
    with torch.no_grad():
        text = _current(task.encode, tokens)[0] if steps else own_untuned
        applied = applied & text.isfinite().flatten(1).all(dim=1)
        text = torch.where(over(applied, text), text, own_untuned)
        after = goal.losses(kept, text)
        if steps:
            applied = applied & after.isfinite()
            after = torch.where(applied, after, losses[0])
        found = [task.of_all(*pair) for pair in zip(task.start, tokens.where(applied), strict=True)]
        text = task.of_all(task.untuned, text)
        return Tuned(
            context=found[0],
            name_tokens=found[1] if len(found) > 1 else None,
            text_features=torch.where(over(applied, text), text, task.untuned),
            initial_features=task.untuned,
            losses=torch.stack([*losses, after], dim=1),
            selected=kept.indices,
            applied=applied,
            shortlist=kept.classes,
        )


def _start(prompts: ClassPrompts, views: Tensor, context: Tensor | None) -> list[Tensor]:
    """Return the tokens that each image starts from: the context, then the names if they are free."""
    if context is None:
        start = conditional_context(prompts, views[:, 0])
    else:
        start = context.float().expand(len(views), *prompts.context.shape)
    names = prompts.name_tokens
    return [start] if names is None else [start, names.expand(len(views), *names.shape)]


def _without_graph(encoder: TextEncoder, contexts: Tensor) -> Tensor:
    """Return the text features of all classes for each image's own context, one image at a time."""
    with torch.no_grad():
        return torch.stack([encoder(context, None) for context in contexts])


def _initial(encoder: TextEncoder, images: int) -> tuple[Tensor, PullBack]:
    """Return text features ``(B, K, E)`` before the first step, and a function that pulls gradients back to the tokens."""
    initial = initial_text(encoder)
    return initial.features.expand(images, *initial.features.shape), initial.gradients_of_each


def _current(encode: TextEncoder | Shortlist, tokens: FreeTokens) -> tuple[Tensor, PullBack]:
    """Return the same for each image's current tokens."""
    values = tokens.values
    text = encode(values[0], values[1] if len(values) > 1 else None)
    return text, lambda upstream: list(torch.autograd.grad(text, values, upstream))


def _only(tuned: Tuned) -> Tuned:
    first: dict[str, Any] = {name: None if value is None else value[0] for name, value in vars(tuned).items()}
    return Tuned(**first)
