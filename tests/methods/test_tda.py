"""TDA against a plain program, and its cache at the edges."""

import dataclasses
import math

import pytest
import torch
from oracles.online import nats, plain_tda
from support.marking import slow_but
from support.prompting import cocoop, saying, with_logits
from support.streams import close, stream_of

from tpt_lib.methods import boostadapter, dpe, fold, stream, tda
from tpt_lib.methods.cache import Cache, affinity, empty_cache, insert


@pytest.mark.parametrize("recipe", ["plain", "views"])
@pytest.mark.parametrize("number", slow_but([1, 12], [1, 2, 12, 40]))
def test_as_the_plain_program(recipe, number):
    model, prompts, images, text = stream_of(40, number)
    close(stream(tda(recipe=recipe), model, prompts, images), plain_tda(images, text, 100.0, recipe))


def test_the_stream_is_not_trivial():
    """It fills classes, has images in and out of the negative band, and images near others."""
    model, prompts, images, text = stream_of(40)
    state = fold("tda", model, prompts, images)
    assert state.positive.filled.all(dim=1).sum() >= 2
    assert 0 < state.negative.filled.sum() < state.negative.filled.numel()
    plain = torch.stack([100 * views[:1].double() @ text.double().T for views in images])[:, 0]
    moved = torch.stack([one.logits for one in stream("tda", model, prompts, images)])
    assert (moved - plain).max() > 3, "more than an image's own affinity, which is 1, gives"


def test_a_class_that_never_comes():
    model, prompts, images, text = stream_of(40)
    images = images[(images[:, 0] @ text.T).argmax(dim=1) != 1]
    close(stream("tda", model, prompts, images), plain_tda(images, text, 100.0))
    state = fold("tda", model, prompts, images)
    assert not state.positive.filled[1].any()
    assert not state.negative.filled[1].any()


@pytest.mark.parametrize(
    "settings", [{"alpha": 1.0, "beta": 8.0}, {"capacity": 1, "negative_capacity": 4}, {"negative_capacity": 1}]
)
def test_its_settings(settings):
    model, prompts, images, text = stream_of()
    capacities = settings.get("capacity", 3), settings.get("negative_capacity", 2)
    of_scores = {name: value for name, value in settings.items() if "capacity" not in name}
    want = plain_tda(images, text, 100.0, capacities=capacities, **of_scores)
    close(stream(tda(**settings), model, prompts, images), want)


def test_entropy_in_nats_over_log2_of_the_classes():
    """An image between 0.5 log K and 0.5 log2 K nats is in the negative band."""
    model, prompts, images, text = stream_of()
    entropies = [nats((100 * views[0].double() @ text.double().T).softmax(dim=0)) for views in images]
    between = [i for i, h in enumerate(entropies) if 0.5 * math.log(5) < h < 0.5 * math.log2(5)]
    assert between
    for i in between[:3]:
        assert fold("tda", model, prompts, images[i : i + 1]).negative.filled.sum() == 1


@pytest.mark.parametrize(("settings", "doubtful"), [
    ({"entropy_range": (-1.0, 1.0)}, 1),
    ({"entropy_range": (-1.0, 1.0), "mask_range": (0.0, 1.0)}, 1),
    ({"entropy_range": (0.0, 1.0)}, 0),
    ({"entropy_range": (-1.0, 0.0)}, 0),
])  # fmt: skip
def test_ranges_are_exclusive(settings, doubtful):
    """Here the entropy is 0 and the probabilities are 1 and 0, which is at the ends of the ranges."""
    model, prompts, _ = saying([[1.0, 0, 0, 0]])
    views = with_logits(torch.tensor([[500.0, 0, -100, -500]]))
    state = fold(tda(**settings), model, prompts, [views])
    assert state.negative.filled.sum() == doubtful
    assert not state.negative.masks.any()


def test_the_first_image_sees_itself():
    """Inserting comes before predicting: its own affinity is 1."""
    model, prompts, images, _ = stream_of()
    method = tda(negative_alpha=0.0)
    _, found = method.step(model, prompts, method.init(model, prompts), images[0])
    raised = found.logits - found.zero_shot.logits
    assert raised[found.zero_shot.index].item() == pytest.approx(2.0, abs=1e-4)
    assert raised.abs().sum().item() == pytest.approx(2.0, abs=1e-4)


def filled_cache(*entropies):
    count = len(entropies)
    return Cache(torch.eye(4)[None, :count].repeat(2, 1, 1), torch.tensor([entropies, [math.inf] * count]))


def test_an_empty_cache():
    cache = empty_cache(stream_of(1)[0], cocoop(), 3, masks=True)
    assert (cache.keys.shape, cache.entropy.shape, cache.masks.shape) == ((4, 3, 16), (4, 3), (4, 3, 4))
    assert not cache.filled.any()


def test_a_newcomer_is_dropped_on_a_tie():
    cache = filled_cache(0.1, 0.2, 0.3)
    same = insert(cache, torch.tensor(0), torch.ones(4), torch.tensor(0.3))
    assert torch.equal(same.keys, cache.keys)
    lower = insert(cache, torch.tensor(0), torch.ones(4), torch.tensor(0.2))
    assert lower.entropy[0].tolist() == pytest.approx([0.1, 0.2, 0.2])
    assert torch.equal(lower.keys[0, :2], cache.keys[0, :2])
    assert torch.equal(lower.keys[0, 2], torch.ones(4))
    many = Cache(torch.randn(1, 40, 4), torch.ones(1, 40))
    assert torch.equal(insert(many, torch.tensor(0), torch.ones(4), torch.tensor(1.0)).keys, many.keys)


def test_first_in_first_out():
    cache = filled_cache(0.1, 0.2, 0.3)
    new = insert(cache, torch.tensor(0), torch.ones(4), torch.tensor(0.9), order="fifo")
    assert new.entropy[0].tolist() == pytest.approx([0.9, 0.1, 0.2])


@pytest.mark.parametrize(("feature", "entropy"), [(math.nan, 0.0), (math.inf, 0.0), (1.0, math.nan)])
def test_what_is_not_finite_does_not_enter_a_cache(feature, entropy):
    cache = filled_cache(0.1, 0.2, math.inf)
    same = insert(cache, torch.tensor(0), torch.full((4,), feature), torch.tensor(entropy))
    assert torch.equal(same.keys, cache.keys)
    assert torch.equal(same.entropy, cache.entropy)


def test_empty_places_have_no_affinity():
    cache = filled_cache(0.1, math.inf, math.inf)
    assert affinity(cache, torch.zeros(4), 5.0).count_nonzero() == 1


@pytest.mark.parametrize("wrong", [{"capacity": 0}, {"negative_capacity": 0}])
def test_settings_out_of_range(wrong):
    with pytest.raises(ValueError, match="tda: capacities must be at least 1, but got"):
        tda(**wrong)


@pytest.mark.usefixtures("no_shape_checks")
@pytest.mark.parametrize("make", [tda, boostadapter, dpe])
def test_an_unknown_recipe(make):
    with pytest.raises(ValueError, match=r"recipe must be one of \('plain', 'views'\), but got 'crop'"):
        make(recipe="crop")


def test_a_state_is_frozen():
    model, prompts, _, _ = stream_of(1)
    with pytest.raises(dataclasses.FrozenInstanceError):
        tda().init(model, prompts).positive = None
