"""DMN-ZS against a plain program."""

import math

import pytest
import torch
from oracles.online import plain_dmn
from support.marking import slow_but
from support.prompting import saying, with_logits
from support.streams import stream_of

from tpt_lib.methods import dmn, fold, stream


def close(found, want, weight=1.0):
    for one, other in zip(found, want, strict=True):
        torch.testing.assert_close(one.logits.double().exp(), other / (1 + weight), atol=2e-4, rtol=0)


@pytest.mark.parametrize("number", slow_but([2], [1, 2, 32]))
@pytest.mark.parametrize(("capacity", "weight"), [(50, 1.0), (2, 1.0), (1, 3.0)])
def test_as_the_plain_program(number, capacity, weight):
    model, prompts, images, text = stream_of(40, number)
    want = plain_dmn(images, text, 100.0, capacity=capacity, weight=weight)
    close(stream(dmn(capacity=capacity, weight=weight), model, prompts, images), want, weight)


def test_its_settings():
    model, prompts, images, text = stream_of(40)
    close(stream("dmn", model, prompts, images), plain_dmn(images, text, 100.0))
    close(stream(dmn(beta=2.0, votes=1), model, prompts, images), plain_dmn(images, text, 100.0, beta=2.0, votes=1))
    assert dmn().init(model, prompts).keys.shape == (5, 50, 16)


def test_a_probability_of_0_has_a_finite_logarithm():
    model, prompts, _ = saying([[1.0, 0.0, 0.0, 0.0]])
    (found,) = stream("dmn", model, prompts, [with_logits(torch.tensor([[0.0, -200.0, -200.0, -200.0]]))])
    assert found.logits.tolist() == pytest.approx([0.0] + [math.log(torch.finfo(torch.float32).tiny)] * 3)


def test_of_equally_certain_views_the_first_ones_vote():
    model, prompts, features = saying([[0.75, 0.25, 0.0, 0.0], *[[0.25, 0.75, 0.0, 0.0]] * 39])
    assert fold(dmn(votes=1), model, prompts, [features]).filled.any(dim=1).tolist() == [True, False, False, False]


def test_the_constants_in_the_entropies():
    """1e-6 where views are compared, which decides between these two, and 1e-8 in the memory."""
    small, many = 3e-6, 0.955e-6
    model, prompts, features = saying([[1 - small, small, 0.0, 0.0], [many, many, many, 1 - 3 * many]])
    assert fold(dmn(votes=1), model, prompts, [features]).filled.any(dim=1).tolist() == [True, False, False, False]
    _, _, features = saying([[1.0, 1e-8, 0.0, 0.0]])
    entropy = fold("dmn", model, prompts, [features]).entropy[0, 0].item()
    assert entropy == pytest.approx(-1e-8 * math.log(2e-8), rel=5e-3)


def test_capacity_is_reached():
    model, prompts, images, _ = stream_of(40)
    assert fold(dmn(capacity=2), model, prompts, images).filled.all(dim=1).sum() >= 2


@pytest.mark.parametrize("wrong", [{"capacity": 0}, {"votes": 0}])
def test_settings_out_of_range(wrong):
    with pytest.raises(ValueError, match="dmn: capacity and votes must be at least 1, but got"):
        dmn(**wrong)
