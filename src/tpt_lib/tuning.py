"""The loop of test-time prompt tuning, and nothing else."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from tpt_lib.logits import class_logits
from tpt_lib.models.protocol import ClipLike
from tpt_lib.objectives import marginal_entropy, select_confident
from tpt_lib.prompts.class_prompts import ClassPrompts, conditional_context
from tpt_lib.text.encode import initial_text, text_encoder

__all__ = ["Tuned", "tune_prompt"]


@dataclass(frozen=True, eq=False)
class Tuned:
    """What tuning found. For a batch of images every tensor has its dimension in front, and ``selected`` is a list.

    Attributes:
        context: the tuned context, of the prompts' shape, float32.
        names: the tuned name tokens ``(K, M, D)`` where names are free, else None.
        text_features: normalised features of the tuned prompts ``(K, E)``.
        initial_features: those before tuning.
        losses: the loss before each step, and after the last ``(steps + 1,)``.
        selected: indices of the views that the loss was computed on.
        applied: False where a loss or gradient was not finite, which leaves the prompt as it was.
    """

    context: Float[Tensor, "*bk l d"]
    names: Float[Tensor, "*b k m d"] | None
    text_features: Float[Tensor, "*b k e"]
    initial_features: Float[Tensor, "*b k e"]
    losses: Float[Tensor, "*b s"]
    selected: Tensor | list[Tensor]
    applied: Bool[Tensor, "*b"]


def tune_prompt(
    model: ClipLike,
    prompts: ClassPrompts,
    image_features: Float[Tensor, "*b n e"],
    *,
    context: Float[Tensor, "*bk l d"] | None = None,
    objective: Callable[[Tensor], Tensor] = marginal_entropy,
    regularizer: Callable[[Tensor], Tensor] | None = None,
    select: Callable[[Tensor], Tensor] = select_confident,
    steps: int = 1,
    lr: float = 5e-3,
    optimizer: Callable[..., torch.optim.Optimizer] = torch.optim.AdamW,
    on_step: Callable[[int, Tensor, Tensor], None] | None = None,
) -> Tuned:
    r"""Tune the prompts' context to the views of one image, or of each of several (section 3.2).

    .. math:: \mathbf p^* = \arg\min_{\mathbf p} \mathbf H(\tilde p{}_{\mathbf p}(y \mid X_{\mathrm{test}}))

    Views are selected once, at the initial context. Each image has its own context and optimizer; nothing carries over.

    Args:
        model: the model.
        prompts: where tuning starts; a CoCoOp context is first shifted by the feature of row 0, the plain image.
        image_features: normalised features of the views ``(N, E)``, or of the views of several images ``(B, N, E)``.
        context: another start than the prompts' own, ``(…, *prompts.context.shape)``. The paper's code fed CoCoOp's network
            the feature as the model gives it, not normalised: ``conditional_context(prompts, model.encode_image(x)[0])``.
        objective: from the selected views' logits ``(M, K)`` to a scalar.
        regularizer: from the text features ``(K, E)`` to a scalar that is added to the objective.
        select: from the logits of all views ``(N, K)`` to the indices ``(M,)`` of those to use.
        steps: how many; 0 leaves the prompt as it is.
        lr: the learning rate.
        optimizer: called as ``optimizer([context], lr=lr)``; AdamW's other settings are PyTorch's, as in the paper's code.
        on_step: called after each step with its number, the losses before it ``(B,)`` and the new contexts ``(B, …)``.

    >>> prompts = tpt_lib.class_prompts(model, ["cat", "dog", "red panda"])
    >>> views = torch.nn.functional.normalize(torch.randn(64, 256), dim=-1)
    >>> tuned = tune_prompt(model, prompts, views)
    >>> tuned.selected.shape, bool(tuned.losses[1] < tuned.losses[0])
    (torch.Size([6]), True)
    """
    _check(prompts, image_features, steps)
    with torch.inference_mode(False), torch.enable_grad():
        views = image_features.detach().float().clone().reshape(-1, *image_features.shape[-2:])
        if context is None:
            start = conditional_context(prompts, views[:, 0])
        else:
            start = context.detach().float().expand(len(views), *prompts.context.shape)
        tokens = [_free_tokens(prompts, context) for context in start]
        optimizers = [optimizer(own, lr=lr) for own in tokens]
        encode = text_encoder(model, prompts)
        if context is None and prompts.bias_net is None:
            text, pull_back = _initial(model, prompts, len(views))
        else:
            text, pull_back = _current(encode, tokens)
        selected = [_checked_selection(select, class_logits(model, v, t)) for v, t in zip(views, text, strict=True)]

        def loss_of(text: Tensor) -> Tensor:
            losses = []
            for v, kept, t in zip(views, selected, text, strict=True):
                loss = objective(class_logits(model, v[kept], t))
                losses.append(loss if regularizer is None else loss + regularizer(t))
            return torch.stack(losses)

        untuned, losses = text, []
        applied = torch.ones(len(views), dtype=torch.bool, device=views.device)
        for step in range(steps):
            text = text.detach().requires_grad_()
            loss = loss_of(text)
            gradients = pull_back(torch.autograd.grad(loss.sum(), text)[0])
            for own, its_gradients, its_optimizer in zip(tokens, gradients, optimizers, strict=True):
                for token, gradient in zip(own, its_gradients, strict=True):
                    token.grad = gradient
                its_optimizer.step()
            applied &= loss.isfinite() & torch.stack(
                [torch.cat([g.flatten() for g in f]).isfinite().all() for f in gradients]
            )
            losses.append(loss.detach())
            if on_step is not None:
                on_step(step, losses[-1], torch.stack([own[0].detach() for own in tokens]))
            with torch.set_grad_enabled(step + 1 < steps):
                text, pull_back = _current(encode, tokens)

    with torch.inference_mode(False), torch.no_grad():
        losses.append(loss_of(text))
        text = _where(applied, text, untuned)
        found = _where(applied, torch.stack([own[0] for own in tokens]), start)
        names = None
        if prompts.name_tokens is not None:
            names = _where(applied, torch.stack([own[1] for own in tokens]), prompts.name_tokens)
    if not applied.all():
        warnings.warn(
            f"tune_prompt: a loss or gradient was not finite for {int((~applied).sum())} of {len(applied)} images; "
            "their prompts are left as they were",
            stacklevel=2,
        )
    tuned = Tuned(found, names, text, untuned.detach(), torch.stack(losses, dim=1), selected, applied)
    return tuned if image_features.ndim == 3 else _only(tuned)


def _free_tokens(prompts: ClassPrompts, context: Tensor) -> list[Tensor]:
    free = [context] if prompts.name_tokens is None else [context, prompts.name_tokens]
    return [token.detach().clone().requires_grad_() for token in free]


PullBack = Callable[[Tensor], list[list[Tensor]]]


def _initial(model: ClipLike, prompts: ClassPrompts, images: int) -> tuple[Tensor, PullBack]:
    """Text features ``(B, K, E)`` before the first step, and what takes gradients in them to the tokens: one graph for all."""
    initial = initial_text(model, prompts)
    text = initial.features.detach()
    return text.expand(images, *text.shape), lambda upstream: [initial.gradients(u) for u in upstream]


def _current(encode: Callable[[Tensor, Tensor | None], Tensor], tokens: list[list[Tensor]]) -> tuple[Tensor, PullBack]:
    """The same at the images' own tokens."""
    stacked = [torch.stack(parts) for parts in zip(*tokens, strict=True)]
    text = encode(stacked[0], stacked[1] if len(stacked) > 1 else None)

    def pull_back(upstream: Tensor) -> list[list[Tensor]]:
        found = iter(torch.autograd.grad(text, [token for own in tokens for token in own], upstream))
        return [[next(found) for _ in own] for own in tokens]

    return text, pull_back


def _where(applied: Tensor, tuned: Tensor, untuned: Tensor) -> Tensor:
    return torch.where(applied.reshape(-1, *[1] * (tuned.ndim - 1)), tuned, untuned).detach()


def _only(tuned: Tuned) -> Tuned:
    names = None if tuned.names is None else tuned.names[0]
    rest = (tuned.text_features, tuned.initial_features, tuned.losses, tuned.selected, tuned.applied)
    return Tuned(tuned.context[0], names, *(each[0] for each in rest))


def _checked_selection(select: Callable[[Tensor], Tensor], logits: Tensor) -> Tensor:
    kept = select(logits)
    if not isinstance(kept, Tensor) or kept.ndim != 1 or kept.dtype not in (torch.int64, torch.int32) or len(kept) == 0:
        what = f"{kept.dtype} of shape {tuple(kept.shape)}" if isinstance(kept, Tensor) else type(kept).__name__
        raise ValueError(
            f"tune_prompt: select must return the indices of one or more views as a tensor (M,), but got {what}"
        )
    return kept


def _check(prompts: ClassPrompts, features: Tensor, steps: int) -> None:
    if not features.is_floating_point() or features.ndim not in (2, 3) or 0 in features.shape:
        raise ValueError(
            "tune_prompt: image_features must be floats of shape (N, E), or (B, N, E) for several images, but got "
            f"{features.dtype} of shape {tuple(features.shape)}; encode_views returns what is wanted"
        )
    if not features.isfinite().all():
        raise ValueError(
            "tune_prompt: image_features are not all finite; look at the image, or at the model's image tower"
        )
    if steps < 0:
        raise ValueError(f"tune_prompt: steps must be 0 or more, but got {steps}")
    if steps and 0 in prompts.context.shape and prompts.name_tokens is None:
        raise ValueError(
            "tune_prompt: the template has no words beside the name, so there is no context to tune; "
            "give it some, as in 'a photo of a {}.', or pass steps=0"
        )
