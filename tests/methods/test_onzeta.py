"""OnZeta against a plain program."""

import pytest
import torch
from oracles.online import plain_onzeta
from support.prompting import saying, with_logits
from support.streams import stream_of

from tpt_lib.methods import onzeta, stream


@pytest.mark.parametrize("settings", [{}, {"alpha": 0.0, "beta": 0.4}, {"alpha": 0.5, "beta": 1.0}])
@pytest.mark.parametrize("expected", [40, 15, 1000, 1])
def test_as_the_plain_program(settings, expected):
    """Also when more images come than were expected. Steps of 12.5 make float32 stray from float64 by some 1e-4."""
    model, prompts, images, text = stream_of(40)
    want = plain_onzeta(images, text, expected, **settings)
    for one, other in zip(stream(onzeta(expected=expected, **settings), model, prompts, images), want, strict=True):
        torch.testing.assert_close(one.probs.double(), other, atol=1e-3, rtol=0)


def test_views_other_than_the_plain_image_do_not_count():
    model, prompts, images, _ = stream_of(10)
    few, many = (list(stream(onzeta(expected=10), model, prompts, one)) for one in (images[:, :1], images))
    assert all(torch.equal(a.logits, b.logits) for a, b in zip(few, many, strict=True))


@pytest.mark.parametrize("wrong", [{}, {"expected": 0}, {"expected": True}])
def test_the_length_of_the_stream_must_be_given(wrong):
    with pytest.raises(ValueError, match="onzeta: expected must be the number of images in the stream"):
        onzeta(**wrong)


def test_a_class_without_any_probability_has_a_finite_logit():
    model, prompts, _ = saying([[1.0, 0, 0, 0]])
    views = with_logits(torch.tensor([[500.0, 0, -100, -500]]))
    found = next(stream(onzeta(expected=3, beta=0.0), model, prompts, [views]))
    assert found.logits.isfinite().all()
    torch.testing.assert_close(found.probs, torch.tensor([1.0, 0, 0, 0]))
