"""DynaPrompt (Xiao et al., ICLR 2025): each image tunes those prompts of a buffer that suit it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Literal, get_args

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from tpt_lib.logits import unchecked_logits
from tpt_lib.methods.base import OnlineMethod, method
from tpt_lib.methods.online import begin, finish
from tpt_lib.models.protocol import ClipLike
from tpt_lib.objectives import entropy, marginal_entropy
from tpt_lib.prediction import Prediction
from tpt_lib.prompts.class_prompts import ClassPrompts, check_one_template, conditional_context
from tpt_lib.text.encode import open_encoder
from tpt_lib.tuning.descent import descend, over
from tpt_lib.tuning.free_tokens import FreeTokens

__all__ = ["DynapromptState", "dynaprompt"]

Rule = Literal["intended", "released"]


@dataclass(frozen=True, eq=False)
class DynapromptState:
    """What each prompt of the buffer adds to the context ``(P, …)``, how often it was used, and their order, oldest first."""

    residuals: Float[Tensor, "p ..."]
    uses: Int[Tensor, " p"]
    order: Int[Tensor, " p"]


@method(name="dynaprompt", title="DynaPrompt", paper="Xiao et al., ICLR 2025", published="DynaPrompt", online=True)
def dynaprompt(
    *, rule: Rule = "intended", size: int = 12, fraction: float = 0.1, lr: float = 5e-3
) -> OnlineMethod[DynapromptState]:
    r"""Return DynaPrompt: the oldest prompt of a buffer and those more confident than it are tuned and averaged.

    Each prompt :math:`j` has the mean entropy :math:`e_j` of the views, and :math:`d_j`, by how much the largest logit of the
    plain image exceeds that of the other views on average. With the oldest prompt :math:`o`:

    .. math::
        J = \{o\} \cup \{j : e_j < e_o,\; d_j > d_o\}, \quad
        \min \frac 1{|J|} \sum_{j \in J} \mathbf H(\tilde p_j), \quad
        \frac 1{|J|} \sum_{j \in J} \boldsymbol\ell_j

    The loss is that of the views of lowest mean entropy under these prompts. One step of AdamW tunes them; then they are the
    newest, in their old order. If every prompt was used, the oldest starts again from the prompts' own context.

    Convention: AdamW holds the whole buffer, so prompts that are not chosen decay a little, as in the released code.

    Args:
        rule: ``"intended"`` (default) is the rule above. ``"released"`` is what the authors' code does: it
            confuses the index of a prompt with its rank, so the ranking by :math:`d` ends at the oldest's rank by :math:`e`.
        size: number of prompts in the buffer (default 12), each of which costs a pass of the text tower per image.
        fraction: share of the views in the loss, the most confident (default 0.1).
        lr: learning rate (default 5e-3).

    Returns:
        The method.

    >>> prompts = tpt_lib.class_prompts(model, ["cat", "dog"])
    >>> found = dynaprompt(size=3)
    >>> state, prediction = found.step(model, prompts, found.init(model, prompts), torch.eye(256)[:20])
    >>> state.uses, state.order
    (tensor([1, 0, 0]), tensor([1, 2, 0]))
    """
    if rule not in get_args(Rule):
        raise ValueError(f"dynaprompt: rule must be one of {get_args(Rule)}, but got {rule!r}")
    if size < 1 or not 0 < fraction <= 1:
        raise ValueError(
            f"dynaprompt: size must be at least 1 and fraction above 0 and at most 1, but got {size} and {fraction}"
        )
    return OnlineMethod(partial(_init, size), partial(_step, rule, fraction, lr))


def _init(size: int, _: ClipLike, prompts: ClassPrompts) -> DynapromptState:
    check_one_template("dynaprompt", prompts)
    order = torch.arange(size, device=prompts.context.device)
    residuals = torch.zeros(size, *prompts.context.shape, device=order.device)
    return DynapromptState(residuals, torch.zeros_like(order), order)


def _step(
    rule: Rule, fraction: float, lr: float, model: ClipLike, prompts: ClassPrompts, state: DynapromptState, features: Tensor
) -> tuple[DynapromptState, Prediction]:  # fmt: skip
    plain, views = begin("dynaprompt", model, prompts, features)
    state = _renewed(state)
    with torch.inference_mode(False), torch.enable_grad():
        views, start = views.clone(), conditional_context(prompts, views[0])
        encoder, tokens = open_encoder(model, prompts), FreeTokens.of([state.residuals], torch.optim.AdamW, lr)
        (residuals,) = tokens.values
        logits = unchecked_logits(model, views, encoder(start + residuals, None))
        seen = logits.detach()
        doubts = entropy(seen)
        chosen = _chosen(rule, state, doubts, seen.amax(dim=-1))
        kept = _mean_over(chosen, doubts).sort(stable=True).indices[: max(1, int(fraction * len(views)))]
        losses = marginal_entropy(logits.index_select(1, kept))
        (gradient,) = torch.autograd.grad(_mean_over(chosen, losses), residuals)
        _, applied = descend(
            tokens.leaves, tokens.before, tokens.optimizers, range(1),
            lambda _: (losses, tokens.of_each([gradient])), stacked=True,
        )  # fmt: skip
    with torch.no_grad():
        tuned = tokens.leaves[0][0].detach()
        answers = unchecked_logits(model, views[:1], encoder(start + tuned, None))[:, 0]
    order = state.order.index_select(0, chosen.index_select(0, state.order).long().sort(stable=True).indices)
    before = unchecked_logits(model, views[:1], plain)[0]
    found = finish("dynaprompt", prompts, features, _mean_over(chosen, answers), before, tuned=applied.all())
    return DynapromptState(tuned, state.uses + chosen, order), found


def _renewed(state: DynapromptState) -> DynapromptState:
    """Return the buffer with a new prompt in place of the oldest, if every prompt was used."""
    prompts = torch.arange(len(state.order), device=state.order.device)
    stale = (prompts == state.order[:1]) & (state.uses > 0).all()
    residuals = torch.where(over(stale, state.residuals), 0, state.residuals)
    return DynapromptState(residuals, torch.where(stale, 0, state.uses), state.order)


def _chosen(
    rule: Rule, state: DynapromptState, doubts: Float[Tensor, "p n"], largest: Float[Tensor, "p n"]
) -> Bool[Tensor, " p"]:
    """Return which prompts are tuned to an image, by their entropies and largest logits of its views."""
    flat = state.residuals.flatten(1)
    first = (flat[:, None] == flat).all(dim=-1).long().argmax(dim=1)  # rounding must not decide between equal prompts
    e = doubts.mean(dim=1).index_select(0, first)
    d = (largest[:, 0] - largest[:, 1:].sum(dim=1) / max(1, largest.shape[1] - 1)).index_select(0, first)
    oldest, size = state.order[:1], len(e)
    is_oldest = torch.arange(size, device=e.device) == oldest
    if rule == "intended":
        return is_oldest | ((e < e.index_select(0, oldest)) & (d > d.index_select(0, oldest)))
    by_e, by_d = (values.sort(descending=True, stable=True).indices for values in (e, d))
    place_e, place_d = by_e.argsort(), by_d.argsort()
    cut = place_e.index_select(0, oldest)
    numbers = (place_e >= (cut + 1).clamp(max=size - 1)) & (place_d < cut)
    return is_oldest | numbers.index_select(0, place_e)


def _mean_over(chosen: Bool[Tensor, " p"], values: Float[Tensor, "p ..."]) -> Tensor:
    return (values * over(chosen, values)).sum(dim=0) / chosen.sum()
