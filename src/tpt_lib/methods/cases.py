"""Pair methods with their prompts, as ``classify``, ``compare`` and ``evaluate`` run them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from tpt_lib.methods.base import AnyMethod, MethodEntry, check_arguments, get_method
from tpt_lib.methods.reward import Reward, RewardModel, as_rewards
from tpt_lib.models.protocol import ClipLike
from tpt_lib.prediction import Prediction
from tpt_lib.prompts.class_prompts import ClassPrompts

MethodLike = AnyMethod
Prompts = ClassPrompts | Sequence[ClassPrompts]
Methods = MethodLike | Sequence[MethodLike] | Mapping[str, MethodLike | tuple[MethodLike, Prompts]]


@dataclass(frozen=True)
class Case:
    """A method with its name in tables, its prompts, and its reward models if it needs any."""

    name: str
    entry: MethodEntry
    prompts: Prompts
    rewards: tuple[RewardModel, ...] = ()

    @property
    def needs_views(self) -> bool:
        return "views" in self.entry.needs

    @property
    def needs_batches(self) -> bool:
        """Whether the method takes batches of plain images."""
        return "images" in self.entry.needs

    @property
    def needs_features(self) -> bool:
        return not (self.needs_views or self.needs_batches)

    def predict(
        self,
        model: ClipLike,
        features: Sequence[Tensor],
        views: Sequence[Tensor],
        similarities: Sequence[Sequence[Tensor]] = (),
    ) -> Prediction:
        """Predict for B images from the features ``(N, E)`` or the views ``(N, 3, H, W)`` of each, as the method needs.

        ``similarities`` has for each image those under each reward model ``(N, K)``. The method gets copies, so that it cannot
        change the inputs of the next method.
        """
        call: Any = self.entry.predict
        each = views if self.needs_views else features
        judged = similarities if self.rewards else [()] * len(each)
        if self.needs_views or len(features) == 1:
            copies = [[similarity.clone() for similarity in own] for own in judged]
            given = [(one, {"reward": own} if own else {}) for one, own in zip(each, copies, strict=True)]
            return Prediction.stack(
                [self._checked(call(model, self.prompts, one.clone(), **more), ()) for one, more in given]
            )
        reward = [torch.stack(of_model) for of_model in zip(*judged, strict=True)]
        more = {"reward": reward} if reward else {}
        return self._checked(call(model, self.prompts, torch.stack(list(features)), **more), (len(features),))

    def _checked(self, found: Any, batch: tuple[int, ...]) -> Prediction:
        if not isinstance(found, Prediction) or found.logits.shape[:-1] != batch:
            got = f"one of shape {tuple(found.logits.shape)}" if isinstance(found, Prediction) else type(found).__name__
            wanted = f"a batch of {batch[0]}" if batch else "one image"
            one_by_one = batch and not self.needs_batches
            hint = "; a method for one image at a time needs batch_size=1" if one_by_one else ""
            raise TypeError(f"{self.name}: a method must return a Prediction of {wanted}, but it returned {got}{hint}")
        return found


def as_cases(
    caller: str,
    methods: Methods,
    prompts: ClassPrompts,
    *,
    preset: str | None = None,
    reward: Reward | None = None,
    online: bool = False,
) -> list[Case]:
    """Return methods with their prompts: their own, if they came in a pair, else ``prompts``.

    Args:
        caller: the function to name in errors.
        methods: a name, a function or a list of them; or a dict from names in tables to any of these, or to a pair of a
            method and its prompts, as ``{"CoOp": ("zero_shot", coop)}``.
        prompts: prompts of the methods that came without any.
        preset: a dataset whose settings each method takes from its authors (default None).
        reward: a pair (model, prompts) or several, for methods that need a reward (default None).
        online: whether online methods are accepted (default False).

    Returns:
        One case per method.
    """
    if not isinstance(methods, Mapping):
        several: Any = methods if isinstance(methods, list | tuple) else [methods]
        methods = {entry.title: entry for entry in map(get_method, several)}
        if len(methods) < len(several):
            raise ValueError(f"{caller}: two methods have the same name; pass a dict with a name for each")
    if not methods:
        raise ValueError(f"{caller}: methods is empty; pass one or more, such as ['zero_shot', 'tpt']")
    rewards = as_rewards(caller, reward, prompts)
    cases = []
    for name, value in methods.items():
        given: Any = value
        if isinstance(given, tuple) and len(given) != 2:
            raise ValueError(
                f"{caller}: {name!r} must be a method or a pair (method, prompts), but got {len(given)} parts"
            )
        what, own = given if isinstance(given, tuple) else (given, prompts)
        entry = get_method(what, preset=preset)
        if entry.online and not online:
            raise ValueError(
                f"{caller}: {name!r} is an online method, but {caller} runs episodic methods; pass it to "
                "tpt_lib.methods.stream or evaluate, which take the images in their order"
            )
        if "images" in entry.needs and not entry.online:
            raise ValueError(
                f"{caller}: {name!r} needs {', '.join(entry.needs)}, but {caller} runs episodic methods on features or views; "
                "declare one of these as needs, or return an OnlineMethod and declare online=True"
            )
        if "reward" in entry.needs and not rewards:
            raise ValueError(
                f"{caller}: {name!r} needs a reward; pass reward=(model, prompts) of a second CLIP, if {caller} takes one"
            )
        own_rewards = rewards if "reward" in entry.needs else ()
        given_by_us = {"reward": None} if own_rewards else {}
        check_arguments(f"{caller}: {name!r}", entry.predict, 0 if entry.online else 3, **given_by_us)
        cases.append(Case(name, entry, own, own_rewards))
    if rewards and not rewards_of(cases):
        raise ValueError(f"{caller}: reward was given, but none of the methods needs one")
    return cases


def rewards_of(cases: Sequence[Case]) -> tuple[RewardModel, ...]:
    """Return the reward models of the cases that have any, which are the same for all."""
    return next((case.rewards for case in cases if case.rewards), ())
