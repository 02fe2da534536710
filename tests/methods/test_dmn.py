"""DMN-ZS against a plain program."""

import pytest
import torch
from oracles.online import plain_dmn
from support.marking import slow_but
from support.streams import stream_of

from tpt_lib.methods import dmn, fold, stream


@pytest.mark.parametrize("number", slow_but([2], [1, 2, 32]))
@pytest.mark.parametrize(("capacity", "weight"), [(50, 1.0), (2, 1.0), (1, 3.0)])
def test_as_the_plain_program(number, capacity, weight):
    model, prompts, images, text = stream_of(40, number)
    want = plain_dmn(images, text, 100.0, capacity=capacity, weight=weight)
    for one, other in zip(stream(dmn(capacity=capacity, weight=weight), model, prompts, images), want, strict=True):
        torch.testing.assert_close(one.probs.double(), other / (1 + weight), atol=2e-4, rtol=0)


def test_capacity_is_reached():
    model, prompts, images, _ = stream_of(40)
    assert fold(dmn(capacity=2), model, prompts, images).filled.all(dim=1).sum() >= 2


@pytest.mark.parametrize("wrong", [{"capacity": 0}, {"votes": 0}])
def test_settings_out_of_range(wrong):
    with pytest.raises(ValueError, match="dmn: capacity and votes must be at least 1, but got"):
        dmn(**wrong)
