"""BoostAdapter against a plain program."""

import pytest
import torch
from oracles.online import plain_tda
from support.marking import slow_but
from support.prompting import saying, with_logits
from support.streams import close, stream_of

from tpt_lib.methods import boostadapter, fold, stream, tda


@pytest.mark.parametrize("recipe", ["plain", "views"])
@pytest.mark.parametrize(
    ("boost", "number"), slow_but([(0, 64), (3, 12), (2, 1)], [(0, 64), (1, 64), (3, 64), (3, 12), (2, 1)])
)
def test_as_the_plain_program(recipe, boost, number):
    model, prompts, images, text = stream_of(24, number)
    found = stream(boostadapter(boost=boost, recipe=recipe), model, prompts, images)
    close(found, plain_tda(images, text, 100.0, recipe, boost=boost, negative="fifo"))


@pytest.mark.parametrize("boosted", [0, 2, 40])
def test_the_number_of_views_that_boost(boosted):
    model, prompts, images, text = stream_of(24, 12)
    found = stream(boostadapter(boosted=boosted), model, prompts, images)
    close(found, plain_tda(images, text, 100.0, boost=3, boosted=boosted, negative="fifo"))


def test_with_one_view_it_is_tda():
    """As its authors ran it on ImageNet."""
    model, prompts, images, _ = stream_of(24, 1)
    for one, other in zip(
        stream(boostadapter(negative="entropy"), model, prompts, images),
        stream(tda(), model, prompts, images),
        strict=True,
    ):
        assert torch.equal(one.logits, other.logits)


@pytest.mark.parametrize("negative", ["fifo", "entropy"])
def test_the_rule_of_its_negative_cache(negative):
    model, prompts, images, text = stream_of(40)
    found = stream(boostadapter(negative=negative), model, prompts, images)
    close(found, plain_tda(images, text, 100.0, boost=3, negative=negative))


def test_the_rules_differ_and_the_views_do_not_stay():
    model, prompts, images, _ = stream_of(40)
    by_age, by_entropy = (fold(boostadapter(negative=rule), model, prompts, images) for rule in ("fifo", "entropy"))
    assert not torch.equal(by_age.negative.keys, by_entropy.negative.keys)
    assert torch.equal(by_entropy.positive.keys, fold(tda(), model, prompts, images).positive.keys)


@pytest.mark.usefixtures("no_shape_checks")
def test_settings_out_of_range():
    with pytest.raises(ValueError, match="boostadapter: boost and boosted must be 0 or more, but got -1 and 6"):
        boostadapter(boost=-1)
    with pytest.raises(ValueError, match="boostadapter: boost and boosted must be 0 or more, but got 3 and -1"):
        boostadapter(boosted=-1)
    with pytest.raises(ValueError, match="boostadapter: negative must be 'fifo' or 'entropy', but got 'lifo'"):
        boostadapter(negative="lifo")


def test_errors_name_the_method():
    with pytest.raises(ValueError, match=r"^boostadapter: capacities must be at least 1, but got 0 and 2"):
        boostadapter(capacity=0)


def test_a_class_of_probability_1_is_not_in_the_mask():
    model, prompts, _ = saying([[1.0, 0.0, 0.0, 0.0]])
    method = boostadapter(entropy_range=(-1.0, 0.5))
    features = with_logits(torch.tensor([[0.0, -200.0, -200.0, -200.0]]))
    state, _ = method.step(model, prompts, method.init(model, prompts), features)
    assert state.negative.filled.sum() == 1
    assert not state.negative.masks.any()
