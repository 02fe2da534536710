"""DPE against a plain program."""

import pytest
import torch
from oracles.online import plain_dpe
from support.prompting import saying, with_logits
from support.streams import close, stream_of

from tpt_lib.methods import dpe, fold, stream


@pytest.mark.parametrize("recipe", ["plain", "views"])
@pytest.mark.parametrize(
    "settings", [{}, {"align": 0.0, "alpha": 3.0, "beta": 8.0}, {"lr": 1e-4, "capacity": 1}, {"read": "views"}]
)
def test_as_the_plain_program(recipe, settings):
    """A coordinate whose gradient is near 0 moves by less than lr, so rounding matters little."""
    model, prompts, images, text = stream_of(24, 20)
    found = stream(dpe(recipe=recipe, **settings), model, prompts, images)
    close(found, plain_dpe(images, text, 100.0, recipe, **settings), atol=1e-2)


def test_one_view():
    model, prompts, images, text = stream_of(24, 1)
    close(stream("dpe", model, prompts, images), plain_dpe(images, text, 100.0), atol=1e-2)


def test_some_images_change_the_text_and_some_do_not():
    model, prompts, images, _ = stream_of(24, 20)
    state = fold("dpe", model, prompts, images)
    assert 0 < int(state.count) < 24
    assert not torch.equal(state.text, dpe().init(model, prompts).text)


def test_in_inference_mode():
    model, prompts, images, _ = stream_of(4)
    want = [one.logits for one in stream("dpe", model, prompts, images)]
    with torch.inference_mode():
        found = [one.logits for one in stream("dpe", model, prompts, images)]
    assert all(torch.equal(a, b) for a, b in zip(found, want, strict=True))


def test_an_entropy_at_the_threshold_does_not_change_the_text():
    model, prompts, _ = saying([[1.0, 0.0, 0.0, 0.0]])
    images = [with_logits(torch.tensor([[0.0, -200.0, -200.0, -200.0]]))]
    assert [int(fold(dpe(threshold=t), model, prompts, images).count) for t in (0.0, 1e-6)] == [0, 1]


@pytest.mark.usefixtures("no_shape_checks")
@pytest.mark.parametrize("which", ["recipe", "read"])
def test_an_unknown_recipe(which):
    with pytest.raises(ValueError, match=r"dpe: recipe must be one of \('plain', 'views'\), but got 'crop'"):
        dpe(**{which: "crop"})


def test_settings_out_of_range():
    with pytest.raises(ValueError, match="dpe: capacity must be at least 1, but got 0"):
        dpe(capacity=0)
