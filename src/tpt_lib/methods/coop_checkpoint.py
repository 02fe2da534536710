"""The result of supervised prompt learning, and the file it is saved to and resumed from."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from tpt_lib.prompts.checkpoints import load_checkpoint, load_prompt, save_prompt
from tpt_lib.prompts.class_prompts import ClassPrompts

__all__ = ["Fitted"]


@dataclass(frozen=True, eq=False)
class Fitted:
    """The result of supervised prompt learning.

    Attributes:
        prompts: the prompts with the learned context (and CoCoOp's network), for ``tpt_predict``, ``save_prompt``, ….
        losses: the mean loss of each epoch.
        accuracies: the accuracy on the training batches of each epoch, before each step.
        validation: the accuracy on the validation images after each epoch; empty without them.
        epoch: the epoch that the prompts are from, counted from 1: the last, or with ``patience`` the best; 0 for the start.
        applied: False if a loss or gradient was not finite. Learning ended there, with the prompts of the epoch before.
    """

    prompts: ClassPrompts
    losses: list[float]
    accuracies: list[float]
    validation: list[float]
    epoch: int
    applied: bool = True


def save_fit(
    file: Path, settings: dict[str, Any], fitted: Fitted, free: list[Tensor], optimizer: torch.optim.Optimizer
) -> None:
    """Save the prompts in CoOp's format, together with everything needed to resume."""
    history = {"losses": fitted.losses, "accuracies": fitted.accuracies, "validation": fitted.validation}
    save_prompt(
        file,
        fitted.prompts,
        epoch=fitted.epoch,
        val_result=100 * (fitted.validation or fitted.accuracies)[fitted.epoch - 1],
        optimizer=optimizer.state_dict(),
        resume={"free": [token.detach() for token in free], "settings": settings, "history": history},
    )


def resume_fit(
    file: Path, settings: dict[str, Any], fitted: Fitted, free: list[Tensor], optimizer: torch.optim.Optimizer
) -> Fitted:
    saved = load_checkpoint(file)
    found = saved.get("resume", {}).get("settings", {}) if isinstance(saved, dict) else {}
    pairs = [(key, found.get(key), here) for key, here in settings.items()]
    differ = [f"{key} is {there!r} there and {here!r} here" for key, there, here in pairs if there != here]
    if differ:
        raise ValueError(
            f"fit_coop: {str(file)!r} belongs to a run with different settings ({'; '.join(differ)}). Pass another checkpoint, "
            "or the same settings to resume"
        )
    for token, value in zip(free, saved["resume"]["free"], strict=True):
        token.data.copy_(value)
    optimizer.load_state_dict(saved["optimizer"])
    best, device = load_prompt(file), free[0].device
    net = None if best.meta_net is None else best.meta_net.to(device)
    prompts = replace(fitted.prompts, context=best.context.to(device), meta_net=net)
    return Fitted(prompts, **saved["resume"]["history"], epoch=saved["epoch"])
