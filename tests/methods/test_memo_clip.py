"""Parameter groups of a CLIP against a plain loop on a deep copy, for every kind of model; what is refused."""

import copy
import functools
import itertools
import math

import pytest
import torch
from oracles.memo import plain_group, with_plain_norms
from support.cases import meta_net
from support.classifiers import close, views_of
from support.marking import slow_but
from support.zoo import fresh

import tpt_lib
from tpt_lib import class_prompts, memo_clip_predict, tpt_predict
from tpt_lib.prompts.contexts import LearnedPrompt

NAMES = ["cat", "red panda", "kite (bird of prey)", "dog"]
ZOO = [f"open_clip-{kind}" for kind in ("vit", "resnet", "custom-text", "siglip")]
ZOO += ["transformers-clip", "transformers-siglip", "openai"]
GROUPS = ["text", "image", "all"]
PAIRS = [("open_clip-vit", "text"), ("open_clip-resnet", "image"), ("transformers-clip", "all")]


@functools.cache
def clip(name):
    model = fresh(name)
    with torch.no_grad():
        model.module.logit_scale.fill_(math.log(30))
    return model


def prompts_of(model, kind):
    if kind == "coop":
        return class_prompts(model, NAMES, context=tpt_lib.gaussian_context(model, 4, sigma=0.5))
    if kind == "cocoop":
        return class_prompts(
            model, NAMES, context=LearnedPrompt(tpt_lib.gaussian_context(model, 4, sigma=0.5), meta_net())
        )
    return class_prompts(model, NAMES)


@pytest.mark.parametrize(("name", "group"), slow_but(PAIRS, list(itertools.product(ZOO, GROUPS))))
def test_groups_are_the_plain_method(name, group):
    model, views = clip(name), views_of(6, 32)
    prompts = prompts_of(model, "words")
    found = memo_clip_predict(model, prompts, views, group=group, lr=0.01, steps=2, chunk=4)
    want = plain_group(model, prompts, views, group, 0.01, 2)
    close(found.logits, want, found.zero_shot.logits)
    zero = tpt_lib.zero_shot_predict(model, prompts, tpt_lib.encode_views(model, views))
    torch.testing.assert_close(found.zero_shot.logits, zero.logits, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("kind", ["coop", "cocoop"])
@pytest.mark.parametrize("name", slow_but(["open_clip-vit"], ["open_clip-vit", "open_clip-coca"]))
def test_groups_with_learned_prompts(name, kind):
    model, views = clip(name), views_of(6, 32)
    prompts = prompts_of(model, kind)
    for group in GROUPS:
        found = memo_clip_predict(model, prompts, views, group=group, lr=0.01, fraction=0.5)
        want = plain_group(model, prompts, views, group, 0.01, 1, fraction=0.5)
        close(found.logits, want, found.zero_shot.logits)


def test_the_prompt_group_is_tpt():
    model, views = clip("open_clip-vit"), views_of(6, 32)
    prompts = prompts_of(model, "words")
    everything = functools.partial(tpt_lib.select_confident, fraction=1.0)
    want = tpt_predict(model, prompts, tpt_lib.encode_views(model, views), select=everything)
    assert torch.equal(memo_clip_predict(model, prompts, views, group="prompt").logits, want.logits)
    other = memo_clip_predict(
        model, prompts, views, group="prompt", lr=1e-2, steps=2, optimizer=torch.optim.SGD, fraction=0.5
    )
    half = functools.partial(tpt_lib.select_confident, fraction=0.5)
    same = {"lr": 1e-2, "steps": 2, "optimizer": torch.optim.SGD, "select": half}
    assert torch.equal(other.logits, tpt_predict(model, prompts, tpt_lib.encode_views(model, views), **same).logits)
    assert len(other.selected) == 3


def test_batch_norms_of_a_clip():
    model, views = clip("open_clip-resnet"), views_of(6, 32)
    prompts = prompts_of(model, "words")
    plain, mixed = (
        memo_clip_predict(model, prompts, views, group="image", prior=prior, steps=0) for prior in (None, 16.0)
    )
    torch.testing.assert_close(plain.logits, plain.zero_shot.logits)
    tower = with_plain_norms(copy.deepcopy(model.module.visual), 16.0)
    with torch.no_grad():
        features = torch.nn.functional.normalize(tower(views[:1]), dim=-1)
    want = tpt_lib.class_logits(model, features, tpt_lib.encode_prompts(model, prompts))[0]
    torch.testing.assert_close(mixed.logits, want, atol=1e-3, rtol=1e-4)
    assert not torch.allclose(plain.logits, mixed.logits, atol=1e-2)


@pytest.mark.parametrize("group", ["prompt", *GROUPS])
def test_what_is_not_finite_leaves_the_model_as_it_was(group):
    """A first step that is far too long makes the second loss NaN."""
    model, views = clip("open_clip-vit"), views_of(4, 32)
    prompts = prompts_of(model, "words")
    zero = tpt_lib.zero_shot_predict(model, prompts, tpt_lib.encode_views(model, views))
    with pytest.warns(UserWarning, match="a loss or gradient was not finite in 1 of 1 cases; those are left unchanged"):
        found = memo_clip_predict(model, prompts, views, group=group, steps=2, lr=1e37)
    assert not found.tuned
    assert "not tuned" in repr(found)
    assert found.loss_before.isfinite()
    assert torch.equal(found.logits, found.zero_shot.logits)
    torch.testing.assert_close(found.logits, zero.logits, atol=1e-4, rtol=1e-4)


@pytest.mark.usefixtures("no_shape_checks")
def test_bad_groups():
    model, views = clip("open_clip-vit"), views_of(2, 32)
    prompts = prompts_of(model, "words")
    with pytest.raises(ValueError, match="group must be one of prompt, text, image, all, but got 'visual'"):
        memo_clip_predict(model, prompts, views, group="visual")
    with pytest.raises(ValueError, match=r"wants views of shape \(N, 3, 32, 32\), but got \(2, 16\)"):
        memo_clip_predict(model, prompts, torch.ones(2, 16), group="all")

    class Bare:
        def __getattr__(self, name):
            return getattr(model, name)

    bare = Bare()
    with pytest.raises(
        TypeError, match="needs a model that wrap or a loader made, which shows its weights, but got Bare"
    ):
        memo_clip_predict(bare, class_prompts(bare, NAMES), views, group="image")
    assert memo_clip_predict(bare, class_prompts(bare, NAMES), views, group="prompt").tuned


def test_views_with_a_gradient_and_a_tower_that_works_in_place():
    """Autograd refuses changes to a tensor that unbind returned."""
    model = tpt_lib.wrap(fresh("open_clip-vit").module)
    model.module.visual.conv1.register_forward_pre_hook(lambda _, rows: (rows[0].mul_(1.0),))
    prompts, views = class_prompts(model, NAMES), views_of(4, 32)
    (given,) = views[None].clone().requires_grad_().unbind()
    got, want = (memo_clip_predict(model, prompts, each, group="image") for each in (given, views))
    assert torch.equal(got.logits, want.logits)
