"""From images to predictions, with any method: what counts as several images, and what is refused before any work."""

import functools

import pytest
import torch
from support import rewards
from support.cases import model_of
from support.zoo import fresh
from torch.utils.data import DataLoader, Dataset

import tpt_lib
from tpt_lib import class_prompts, classify, get_method, list_methods, tpt_classify, tpt_predict, zero_shot_predict

NAMES = ["cat", "red panda", "dog"]


def image(seed=0, size=(40, 40)):
    return torch.randint(256, (3, *size), dtype=torch.uint8, generator=torch.Generator().manual_seed(seed))


IMAGES = [image(i) for i in range(3)]


class Labeled(Dataset):
    def __len__(self):
        return len(IMAGES)

    def __getitem__(self, index):
        return IMAGES[index], index % 2


class Bare(Labeled):
    def __getitem__(self, index):
        return IMAGES[index]


@pytest.mark.parametrize("name", list_methods())
def test_any_method_from_an_image_on(name):
    model, entry = model_of(), get_method(name)
    prompts = class_prompts(model, NAMES)
    views = tpt_lib.augment_views(image(), model.image_spec, n_views=6, recipe="augmix", seed=3)
    given = views if "views" in entry.needs else tpt_lib.encode_views(model, views)
    options = {"n_views": 6, "recipe": "augmix", "seed": 3}
    needed = {"reward": rewards.by_hand(image(), NAMES, **options)} if "reward" in entry.needs else {}
    want = entry.predict(model, prompts, given, **needed)
    options |= {"reward": rewards.pair(NAMES)} if needed else {}
    for classes, method in ((NAMES, name), (prompts, entry.predict), (prompts, entry)):
        found = classify(model, image(), classes, method=method, **options)
        torch.testing.assert_close(found.logits, want.logits)
        assert found.names == tuple(NAMES)
    other = classify(model, image(), prompts, method=name, **{**options, "recipe": "crop", "seed": 4})
    looks_at_random_views = name not in ("zero_shot", "template_ensemble")
    assert torch.allclose(other.logits, want.logits, atol=1e-4) != looks_at_random_views


@pytest.mark.parametrize("name", ["view_average", "memo_clip"])
@pytest.mark.parametrize("batch_size", [1, 2, 8])
def test_batches_give_what_one_at_a_time_gives(name, batch_size):
    model, prompts = model_of(), class_prompts(model_of(), NAMES)
    alone = [classify(model, one, prompts, method=name, n_views=4) for one in IMAGES]
    assert len({tuple(one.logits.tolist()) for one in alone}) == 3, "images must differ for their order to show"
    together = classify(model, IMAGES, prompts, method=name, n_views=4, batch_size=batch_size)
    torch.testing.assert_close(together.logits, torch.stack([one.logits for one in alone]), atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize(
    "images", [IMAGES, tuple(IMAGES), torch.stack(IMAGES), Bare(), Labeled()], ids=lambda images: type(images).__name__
)
def test_several_images_of_every_kind(images):
    model, prompts = model_of(), class_prompts(model_of(), NAMES)
    want = torch.stack([classify(model, one, prompts, method="zero_shot", n_views=1).logits for one in IMAGES])
    found = classify(model, images, prompts, method="zero_shot", n_views=1)
    torch.testing.assert_close(found.logits, want)


def test_several_images_are_judged_one_by_one_by_several_clips():
    """The reward models have another width and size; one of them has the size of the model, and shares its views."""
    model, prompts = model_of(), class_prompts(model_of(), NAMES)
    both = [rewards.pair(NAMES), (fresh("open_clip-resnet"), None)]
    both[1] = both[1][0], class_prompts(both[1][0], NAMES)
    together = classify(model, IMAGES, prompts, method="rlcf", reward=both, n_views=6, batch_size=2)
    for one, found in zip(IMAGES, together, strict=True):
        views = tpt_lib.augment_views(one, model.image_spec, n_views=6)
        second = tpt_lib.encode_views(both[1][0], views) @ tpt_lib.encode_prompts(*both[1]).detach().T
        judged = [rewards.by_hand(one, NAMES, n_views=6), second]
        want = tpt_lib.methods.rlcf_predict(model, prompts, tpt_lib.encode_views(model, views), reward=judged)
        torch.testing.assert_close(found.logits, want.logits, atol=1e-3, rtol=0)


def test_a_preset_changes_the_settings():
    model, prompts = model_of(), class_prompts(model_of(), NAMES)
    found = classify(model, image(), prompts, method="ctpt", preset="imagenet-a", n_views=6)
    method = functools.partial(tpt_lib.methods.ctpt_predict, weight=20.0)
    assert torch.equal(found.logits, classify(model, image(), prompts, method=method, n_views=6).logits)
    assert not torch.equal(found.logits, classify(model, image(), prompts, method="ctpt", n_views=6).logits)


def test_one_image_and_a_list_of_one():
    model = model_of()
    one = classify(model, image(), NAMES, method="zero_shot", n_views=1)
    listed = classify(model, [image()], NAMES, method="zero_shot", n_views=1)
    assert one.logits.shape == (3,)
    assert listed.logits.shape == (1, 3)
    assert torch.equal(listed[0].logits, one.logits)


def test_images_are_read_as_they_are_needed():
    """A dataset of millions does not fit in memory: no image is read before its batch, none is read twice."""
    read, seen = [], []

    class Reading(Bare):
        def __getitem__(self, index):
            read.append(index)
            return IMAGES[index]

    def method(model, prompts, features):
        seen.append(len(read))
        return zero_shot_predict(model, prompts, features)

    classify(model_of(), Reading(), NAMES, method=method, n_views=1, batch_size=2)
    assert (seen, read) == ([2, 3], [0, 1, 2])


def test_eight_images_are_given_together_by_default():
    seen = []

    def method(model, prompts, features):
        seen.append(tuple(features.shape[:-2]))
        return zero_shot_predict(model, prompts, features)

    classify(model_of(), [image()] * 10, NAMES, method=method, n_views=1)
    assert seen == [(8,), (2,)]


def test_tpt_is_the_default_and_tpt_classify_its_short_form():
    model = model_of()
    short = tpt_classify(model, IMAGES, NAMES, n_views=8, seed=2, steps=2, lr=0.01)
    method = functools.partial(tpt_predict, steps=2, lr=0.01)
    assert torch.equal(classify(model, IMAGES, NAMES, method=method, n_views=8, seed=2).logits, short.logits)
    default = classify(model, IMAGES, NAMES, n_views=8)
    assert torch.equal(default.logits, tpt_classify(model, IMAGES, NAMES, n_views=8).logits)
    assert default.tuned.all()


def test_a_generator_as_seed_is_drawn_from_once():
    model, draw = model_of(), torch.Generator().manual_seed(5)
    first = classify(model, IMAGES, NAMES, method="view_average", n_views=4, seed=draw)
    second = classify(model, IMAGES, NAMES, method="view_average", n_views=4, seed=draw)
    draw.manual_seed(5)
    again = classify(model, IMAGES, NAMES, method="view_average", n_views=4, seed=draw, batch_size=1)
    torch.testing.assert_close(first.logits, again.logits, atol=1e-4, rtol=1e-4)
    assert not torch.allclose(first.logits, second.logits)


class Untouchable:
    """Stands where a model is expected, and fails on any use."""

    def __getattr__(self, name):
        raise AssertionError(f"model.{name} was used before the arguments were checked")


@pytest.mark.usefixtures("no_shape_checks")
@pytest.mark.parametrize(("change", "kind", "message"), [
    ({"n_view": 8}, TypeError, "classify: unknown keyword 'n_view'; did you mean 'n_views'"),
    ({"steps": 8}, TypeError, "classify: unknown keyword 'steps'; it takes n_views, .*method=functools.partial"),
    ({"n_views": 0}, ValueError, "n_views must be an int of at least 1, but got 0"),
    ({"recipe": "crops"}, ValueError, "recipe must be 'crop', 'augmix' or a function, but got 'crops'"),
    ({"batch_size": 0}, ValueError, "batch_size must be at least 1, but got 0"),
    ({"method": "ttp"}, ValueError, "there is no method 'ttp'; did you mean 'tpt'. There are"),
    ({"preset": "my pets"}, ValueError, "have no settings for 'my pets', only for imagenet"),
    ({"images": DataLoader(Bare())}, TypeError, "a DataLoader is not a list of images.* Pass its dataset; or, for a loader"),
])  # fmt: skip
def test_arguments_are_checked_before_any_work(change, kind, message):
    arguments = {"images": IMAGES, "classes": NAMES} | change
    with pytest.raises(kind, match=message):
        classify(Untouchable(), **arguments)


@pytest.mark.usefixtures("no_shape_checks")
def test_bad_images_and_prompts():
    model = model_of()
    for nothing in ([], (), torch.empty(0, 3, 8, 8)):
        with pytest.raises(ValueError, match="classify: there are no images; at least one is needed"):
            classify(model, nothing, NAMES)
    with pytest.raises(TypeError, match="an image must be a PIL image, a tensor, an array or a path, but got int"):
        classify(model, [3], NAMES)
    with pytest.raises(ValueError, match="names is empty; at least one class is needed"):
        classify(model, IMAGES, [])
    with pytest.raises(ValueError, match="these prompts were made for another model"):
        classify(model, IMAGES, class_prompts(fresh("open_clip-vit"), NAMES), method="zero_shot", n_views=1)
    with pytest.raises(TypeError, match="must return a Prediction of a batch of 3, but it returned Tensor"):
        classify(model, IMAGES, NAMES, method=lambda model, prompts, features: features, n_views=1)


@pytest.mark.parametrize("method", ["tda", tpt_lib.methods.tda(), get_method("tda")])
def test_images_are_a_stream_for_an_online_method(method, caplog):
    model, prompts = model_of(), class_prompts(model_of(), NAMES)
    with caplog.at_level("INFO"):
        found = classify(model, IMAGES, prompts, method=method, n_views=4, batch_size=2)
    features = [tpt_lib.encode_views(model, tpt_lib.augment_views(one, model.image_spec, n_views=4)) for one in IMAGES]
    want = torch.stack([one.logits for one in tpt_lib.methods.stream("tda", model, prompts, features)])
    assert torch.equal(found.logits, want)
    assert not torch.equal(classify(model, IMAGES[::-1], prompts, method=method, n_views=4).logits.flip(0), want)
    assert "learned from the images in the order given (3); results depend on it" in caplog.text


def test_one_image_is_a_stream_of_one():
    model, prompts = model_of(), class_prompts(model_of(), NAMES)
    alone = classify(model, IMAGES[0], prompts, method="tda", n_views=4)
    assert torch.equal(alone.logits, classify(model, IMAGES[:1], prompts, method="tda", n_views=4)[0].logits)
    assert torch.equal(alone.logits, classify(model, IMAGES, prompts, method="tda", n_views=4)[0].logits)


@pytest.mark.parametrize("method", ["tent", tpt_lib.methods.tent()])
@pytest.mark.parametrize("batch_size", [1, 2, 8])
def test_tent_learns_from_batches(method, batch_size):
    model, prompts = model_of(), class_prompts(model_of(), NAMES)
    found = classify(model, IMAGES, prompts, method=method, batch_size=batch_size)
    plain = torch.stack([tpt_lib.views.preprocess(one, model.image_spec) for one in IMAGES])
    want = list(tpt_lib.methods.stream("tent", model, prompts, plain.split(batch_size)))
    assert torch.equal(found.logits, torch.cat([one.logits for one in want]))


def test_online_methods_with_settings_and_presets():
    model, prompts = model_of(), class_prompts(model_of(), NAMES)
    onzeta = functools.partial(tpt_lib.methods.onzeta, expected=3)
    assert len(classify(model, IMAGES, prompts, method=onzeta, n_views=1)) == 3
    found = classify(model, IMAGES, prompts, method="tda", preset="pets", n_views=4)
    want = classify(model, IMAGES, prompts, method=tpt_lib.methods.tda(alpha=2.0, beta=7.0), n_views=4)
    assert torch.equal(found.logits, want.logits)


def test_online_methods_are_refused_before_the_work():
    model, prompts = model_of(), class_prompts(model_of(), NAMES)
    with pytest.raises(ValueError, match="onzeta: expected must be"):
        classify(model, IMAGES, prompts, method="onzeta")
    with pytest.raises(ValueError, match="classify: reward was given, but 'tda' needs none"):
        classify(model, IMAGES, prompts, method="tda", reward=rewards.pair(NAMES))
    with pytest.raises(ValueError, match="classify: there are no images"):
        classify(model, [], prompts, method="tda")
