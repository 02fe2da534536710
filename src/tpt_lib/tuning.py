"""Test-time prompt tuning: the views of an image to a context tuned to it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypedDict, TypeVar

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from tpt_lib.descent import descend, warn_not_applied
from tpt_lib.logits import class_logits
from tpt_lib.models.protocol import ClipLike
from tpt_lib.objectives import marginal_entropy, select_confident
from tpt_lib.prompts.class_prompts import ClassPrompts, conditional_context
from tpt_lib.text.encode import TextEncoder, open_encoder
from tpt_lib.text.initial import initial_text
from tpt_lib.tuning_checks import (
    check_finite_features,
    check_optimizer,
    check_scalar,
    check_selections,
    check_start,
    unattached,
)
from tpt_lib.types import Objective, OptimizerFactory, Regularizer, Select

__all__ = ["TuneOptions", "Tuned", "tune_prompt"]

T = TypeVar("T")
PullBack = Callable[[Tensor], list[list[Tensor]]]


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

    Returns:
        The tuned context and its text features.

    >>> prompts = tpt_lib.class_prompts(model, ["cat", "dog", "red panda"])
    >>> views = torch.nn.functional.normalize(torch.randn(64, 256), dim=-1)
    >>> tuned = tune_prompt(model, prompts, views)
    >>> tuned.selected.shape, bool(tuned.losses[1] < tuned.losses[0])
    (torch.Size([6]), True)
    """
    check_start(prompts, image_features, steps)
    check_finite_features(bool(image_features.isfinite().all()))
    with torch.inference_mode(False), torch.enable_grad():
        views = image_features.detach().float().clone().reshape(-1, *image_features.shape[-2:])
        if context is None:
            start = conditional_context(prompts, views[:, 0])
        else:
            start = context.detach().float().expand(len(views), *prompts.context.shape)
        before = [[one] if prompts.name_tokens is None else [one, prompts.name_tokens] for one in start]
        tokens = [[token.detach().clone().requires_grad_() for token in own] for own in before]
        encoder = open_encoder(model, prompts)
        shared = context is None and prompts.meta_net is None
        first = _initial(encoder, len(views)) if shared else _current(encoder, tokens)
        untuned = first[0].detach()
        selected = [select(class_logits(model, v, t)) for v, t in zip(views, untuned, strict=True)]
        check_selections(select, selected, views.shape[1])

        def losses_of(text: Tensor) -> Tensor:
            losses, attached = [], text.requires_grad
            for v, kept, t in zip(views, selected, text, strict=True):
                loss = objective(class_logits(model, v[kept], t))
                loss = check_scalar("objective", objective, "logits", loss, attached=attached)
                if regularizer is not None:
                    added = check_scalar("regularizer", regularizer, "text features", regularizer(t), attached=attached)
                    loss = loss + added
                losses.append(loss)
            return torch.stack(losses)

        def gradients(step: int) -> tuple[Tensor, list[list[Tensor]]]:
            text, pull_back = first if step == 0 else _current(encoder, tokens)
            text = text.detach().requires_grad_()
            losses = losses_of(text)
            (upstream,) = torch.autograd.grad(losses.sum(), text, allow_unused=True)
            if upstream is None:
                raise unattached("objective", objective, "logits")
            return losses.detach(), pull_back(upstream)

        def report(step: int, losses: Tensor) -> None:
            if on_step is not None:
                on_step(step, losses, torch.stack([own[0].detach() for own in tokens]))

        optimizers = [check_optimizer(optimizer, optimizer(own, lr=lr)) for own in tokens]
        losses, applied = descend(tokens, before, optimizers, range(steps), gradients, report)
    with torch.inference_mode(False), torch.no_grad():
        text = _current(encoder, tokens)[0] if steps else untuned
        applied = applied & text.isfinite().all(dim=-1).all(dim=-1)
        after = losses_of(torch.where(applied[:, None, None], text, untuned))
        if steps:
            applied = applied & after.isfinite()
            after = torch.where(applied, after, losses[0])
        tuned = Tuned(
            context=_kept(applied, tokens, before, 0),
            name_tokens=None if prompts.name_tokens is None else _kept(applied, tokens, before, 1),
            text_features=torch.where(applied[:, None, None], text, untuned),
            initial_features=untuned,
            losses=torch.stack([*losses, after], dim=1),
            selected=pad_sequence(selected, batch_first=True, padding_value=-1),
            applied=applied,
        )
    warn_not_applied("tune_prompt", applied, lr=lr)
    return tuned if image_features.ndim == 3 else _only(tuned)


def _initial(encoder: TextEncoder, images: int) -> tuple[Tensor, PullBack]:
    """Return text features ``(B, K, E)`` before the first step, and what takes gradients in them to the tokens."""
    initial = initial_text(encoder)
    text = initial.features
    return text.expand(images, *text.shape), lambda upstream: [initial.gradients(u) for u in upstream]


def _current(encoder: TextEncoder, tokens: list[list[Tensor]]) -> tuple[Tensor, PullBack]:
    """Return the same at the images' own tokens."""
    stacked = [torch.stack(parts) for parts in zip(*tokens, strict=True)]
    text = encoder(stacked[0], stacked[1] if len(stacked) > 1 else None)

    def pull_back(upstream: Tensor) -> list[list[Tensor]]:
        found = iter(torch.autograd.grad(text, [token for own in tokens for token in own], upstream))
        return [[next(found) for _ in own] for own in tokens]

    return text, pull_back


def _kept(applied: Tensor, tokens: list[list[Tensor]], before: list[list[Tensor]], part: int) -> Tensor:
    """Return the context (part 0) or the name tokens (part 1) of every image, as they were where tuning was not applied."""
    rows = zip(applied, tokens, before, strict=True)
    return torch.stack([torch.where(ok, own[part].detach(), old[part]) for ok, own, old in rows])


def _only(tuned: Tuned) -> Tuned:
    first: dict[str, Any] = {name: None if value is None else value[0] for name, value in vars(tuned).items()}
    return Tuned(**first)
