"""ECALP against a plain program."""

import pytest
import torch
from oracles.online import plain_ecalp
from support.prompting import unit
from support.streams import CLASSES, stream_of

from tpt_lib.methods import ecalp, fold, stream


def as_the_plain_program(settings, images=None, names=CLASSES):
    model, prompts, drawn, text = stream_of(24, 2, names=names)
    images = drawn if images is None else images
    found = list(stream(ecalp(**settings), model, prompts, images))
    for i, (one, other) in enumerate(zip(found, plain_ecalp(images, text, **settings), strict=True)):
        torch.testing.assert_close(
            one.probs.double(), other, atol=1e-4, rtol=0, msg=lambda message, i=i: f"image {i}: {message}"
        )
    return found


def test_as_the_plain_program():
    as_the_plain_program({"capacity": 30})


@pytest.mark.parametrize("capacity", [1, 5, 23, 24])
def test_the_oldest_image_leaves(capacity):
    as_the_plain_program({"capacity": capacity})


@pytest.mark.parametrize(
    "settings", [{"images": 2, "texts": 1}, {"power": 3}, {"rounds": 1}, {"decay": 0.5}, {"images": 40, "texts": 9}]
)
def test_its_settings(settings):
    as_the_plain_program({"capacity": 12, **settings})


@pytest.mark.parametrize("names", [["cat", "dog"], ["cat"]])
def test_few_classes(names):
    as_the_plain_program({"capacity": 10}, names=names)


def test_images_that_oppose_each_other():
    """A place without an image is no neighbor, not even where it is nearer than all images."""
    as_the_plain_program({"capacity": 12, "images": 3}, images=unit(10, 2, 16))


def test_more_room_than_images_changes_nothing():
    model, prompts, images, _ = stream_of(12)
    few, many = (list(stream(ecalp(capacity=c), model, prompts, images)) for c in (12, 40))
    for one, other in zip(few, many, strict=True):
        torch.testing.assert_close(one.logits, other.logits, atol=1e-5, rtol=0)


def test_past_images_count():
    """The stream moves a prediction from what the image alone gives."""
    model, prompts, images, _ = stream_of(24)
    alone = [next(stream(ecalp(capacity=4), model, prompts, views[None])).probs for views in images]
    after = [found.probs for found in stream(ecalp(capacity=30), model, prompts, images)]
    assert (torch.stack(alone) - torch.stack(after)).abs().amax(dim=1)[8:].min() > 1e-3


def test_the_state_of_a_stream():
    model, prompts, images, _ = stream_of(6)
    state = fold(ecalp(capacity=4), model, prompts, images)
    assert int(state.count) == 4
    assert torch.equal(state.features, images[2:, 0])
    assert (state.scores > 0).all()
    assert len(ecalp().init(model, prompts).features) == 1000


def test_an_image_that_no_class_is_near():
    """All its scores are 0, which decides for no class."""
    model, prompts, _, text = stream_of(1)
    image = torch.linalg.svd(text).Vh[-1:]
    found = next(stream(ecalp(capacity=4, power=40), model, prompts, image[None]))
    torch.testing.assert_close(found.probs, torch.full((5,), 0.2))


@pytest.mark.parametrize("wrong", ["capacity", "images", "texts", "power", "rounds"])
def test_settings_out_of_range(wrong):
    with pytest.raises(
        ValueError, match="ecalp: capacity, images, texts, power and rounds must be at least 1, but got"
    ):
        ecalp(**{wrong: 0})
