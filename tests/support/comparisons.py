"""What the tests of comparisons, sweeps and budgets start from: one model, prompts of several kinds, three images."""

import functools
import math

import torch
from support.cases import meta_net
from support.zoo import fresh

import tpt_lib
from tpt_lib.prompts import LearnedPrompt

NAMES = ["cat", "red panda", "dog"]


@functools.cache
def setting():
    """A model at scale 30, where settings of TPT still differ in their entropies, and its prompts."""
    model = fresh("open_clip-vit")
    with torch.no_grad():
        model.module.logit_scale.fill_(math.log(30))
    return model, tpt_lib.class_prompts(model, NAMES)


def images_of(number=3):
    return torch.randint(256, (number, 3, 40, 60), dtype=torch.uint8, generator=torch.Generator().manual_seed(1))


def features_of(image, **views):
    model, _ = setting()
    return tpt_lib.encode_views(model, tpt_lib.augment_views(image, model.image_spec, **{"n_views": 6, **views}))


def coop():
    return tpt_lib.class_prompts(setting()[0], NAMES, context=tpt_lib.gaussian_context(setting()[0], 4, sigma=1.0))


def cocoop():
    learned = LearnedPrompt(tpt_lib.gaussian_context(setting()[0], 4, sigma=1.0), meta_net())
    return tpt_lib.class_prompts(setting()[0], NAMES, context=learned)
