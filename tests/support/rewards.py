"""A second CLIP of another width and image size, whose similarities are the reward of a method that needs one."""

import functools
import math

import torch
from support.zoo import open_clip_model

import tpt_lib


@functools.cache
def second_clip():
    found = tpt_lib.wrap(open_clip_model(embed_dim=24, vision={"image_size": 48}))
    with torch.no_grad():
        found.module.logit_scale.fill_(math.log(30))
    return found


@functools.cache
def second_prompts(names):
    return tpt_lib.class_prompts(second_clip(), names, template="a {}.")


def pair(names):
    return second_clip(), second_prompts(tuple(names))


def by_hand(image, names, **views):
    """The similarities ``(N, K)`` that a pair gives, from its parts."""
    model, prompts = pair(names)
    made = tpt_lib.augment_views(image, model.image_spec, **views)
    assert made.shape[-2:] == (48, 48)
    return tpt_lib.encode_views(model, made) @ tpt_lib.encode_prompts(model, prompts).detach().T
