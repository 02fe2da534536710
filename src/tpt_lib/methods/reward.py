"""Compute the reward of a method: a second CLIP scores the same views for the same classes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from tpt_lib.features.encode import encode_views
from tpt_lib.models.protocol import ClipLike, ImageSpec
from tpt_lib.prompts.class_prompts import ClassPrompts
from tpt_lib.text.initial import start_features
from tpt_lib.types import ImageLike, kind_of
from tpt_lib.views.augment import augment_views
from tpt_lib.views.settings import ViewSettings

RewardModel = tuple[ClipLike, ClassPrompts]
Reward = RewardModel | Sequence[RewardModel]


def as_rewards(caller: str, reward: Reward | None, prompts: ClassPrompts) -> tuple[RewardModel, ...]:
    """Return the pairs of a model and its prompts, checked against the prompts of the model that is rewarded."""
    given: Any = () if reward is None else reward
    pairs = (given,) if isinstance(given, tuple) and len(given) == 2 and isinstance(given[1], ClassPrompts) else given
    for pair in pairs:
        if not isinstance(pair, tuple) or len(pair) != 2 or not isinstance(pair[1], ClassPrompts):
            raise TypeError(
                f"{caller}: reward must be a pair (model, prompts) of a second CLIP, or a list of such pairs, but got "
                f"{type(pair).__name__}; class_prompts(model, names) makes the prompts"
            )
        if pair[1].names != prompts.names:
            raise ValueError(
                f"{caller}: the reward's prompts must have the same classes in the same order, but they have "
                f"{list(pair[1].names)[:4]} and the others {list(prompts.names)[:4]}"
            )
    return tuple(pairs)


def judge(
    rewards: Sequence[RewardModel], image: ImageLike, views: Tensor, spec: ImageSpec, settings: ViewSettings
) -> list[Float[Tensor, "n k"]]:
    """Return the cosines ``(N, K)`` of the views of an image to the classes, for each reward model; see ``reward_views``."""
    return similarities(rewards, reward_views([model.image_spec for model, _ in rewards], image, views, spec, settings))


def reward_views(
    specs: Sequence[ImageSpec], image: ImageLike, views: Tensor, spec: ImageSpec, settings: ViewSettings
) -> list[Tensor]:
    """Return the views of an image for each reward model: the same boxes, at the size of that model.

    Args:
        specs: the preprocessing of each reward model.
        image: the image.
        views: its views for the model that is rewarded, which a reward model with the same preprocessing shares.
        spec: the preprocessing of the model that is rewarded.
        settings: how the views were made.

    Returns:
        Views ``(N, 3, h, w)`` for each reward model.
    """
    return [views if own == spec else augment_views(image, own, device=views.device, **vars(settings)) for own in specs]


def similarities(rewards: Sequence[RewardModel], views: Sequence[Tensor]) -> list[Float[Tensor, "n k"]]:
    """Return the cosines ``(N, K)`` of the views of one image to the classes, for each reward model."""
    own = [prompts.context.device for _, prompts in rewards]
    encoded = [encode_views(m, one.to(at)) for (m, _), one, at in zip(rewards, views, own, strict=True)]
    return feature_similarities(rewards, encoded, [one.device for one in views])


def feature_similarities(
    rewards: Sequence[RewardModel], features: Sequence[Tensor], devices: Sequence[torch.device]
) -> list[Float[Tensor, "n k"]]:
    """Return the cosines ``(N, K)`` of the features of one image's views to the classes, for each reward model, on a given
    device each."""
    found = []
    for (model, prompts), each, device in zip(rewards, features, devices, strict=True):
        own = each.to(prompts.context.device)
        with torch.no_grad():
            found.append((own @ start_features(model, prompts, own).mT).to(device))
    return found


def clip_scores(
    caller: str, reward: Tensor | Sequence[Tensor], weights: Sequence[int | float] | None, shape: tuple[int, ...]
) -> Float[Tensor, "*b n k"]:
    """Return the weighted mean over reward models of their CLIPScores, 2.5 times a cosine and at least 0.

    Args:
        caller: the function to name in errors.
        reward: cosines under one reward model, or a list of them under several.
        weights: weights of the reward models; None for equal ones.
        shape: the shape that cosines must have.

    Returns:
        Scores of that shape.
    """
    several = [reward] if isinstance(reward, Tensor) else list(reward)
    for one in several:
        if tuple(one.shape) != shape:
            raise ValueError(
                f"{caller}: reward must have the cosines of all views to all classes, of shape {shape}, but got "
                f"{tuple(one.shape)}; encode_views(other, views) @ encode_prompts(other, prompts).T has them"
            )
        if not one.is_floating_point() or not one.isfinite().all():
            values = " with NaN or infinite values" if one.is_floating_point() else ""
            raise ValueError(f"{caller}: reward must be finite floats, but got {kind_of(one)}{values}")
    given = [1.0] * len(several) if weights is None else list(weights)
    if not several or len(given) != len(several) or min(given) < 0 or sum(given) <= 0:
        raise ValueError(
            f"{caller}: one or more rewards need as many weights, none negative and not all 0, but there are {len(several)} "
            f"rewards and weights {given}"
        )
    scores = [weight * (2.5 * one.float()).clamp(min=0) for weight, one in zip(given, several, strict=True)]
    return torch.stack(scores).sum(dim=0) / sum(given)


def policy_loss(logits: Float[Tensor, "m k"], *, scores: Float[Tensor, "m k"], sampled: int) -> Float[Tensor, ""]:
    """Return the loss of the kept views whose gradient is REINFORCE's, with the mean score of a view as baseline."""
    if sampled < 1:
        raise ValueError(f"rlcf_predict: sampled must be at least 1, but got {sampled}")
    chosen = logits.topk(min(sampled, logits.shape[1])).indices
    advantage = scores.gather(1, chosen)
    advantage = advantage - advantage.mean(dim=-1, keepdim=True)
    return -(advantage * logits.log_softmax(dim=-1).gather(1, chosen)).mean()
