"""ViewSettings: what it refuses, and the record that identities are made of."""

import dataclasses
import inspect
import json
import re
from functools import partial

import pytest
import torch
from support.pictures import generator

from tpt_lib import ImageSpec
from tpt_lib.types import ViewOptions
from tpt_lib.views import ViewsDataset, ViewSettings, augment_views

SMALL = ImageSpec((32, 32))

WRONG = [
    ({"n_views": 0}, "augment_views: n_views must be an int of at least 1, but got 0"),
    ({"n_views": 2.5}, "augment_views: n_views must be an int of at least 1, but got 2.5"),
    ({"recipe": "flip"}, "augment_views: recipe must be 'crop', 'augmix' or a function, but got 'flip'"),
    ({"scale": (0.0, 1.0)}, r"crops: scale must be .* 0 < low <= high <= 1, but got \(0.0, 1.0\)"),
    ({"ratio": (2.0, 1.0)}, r"crops: ratio must be .* but got \(2.0, 1.0\)"),
    ({"severity": 0.1}, "augmix: severity must be above 0.1 and at most 10, but got 0.1"),
    ({"recipe": "augmix", "severity": 11}, "augmix: severity must be above 0.1 and at most 10, but got 11"),
]


@pytest.mark.parametrize(("options", "message"), WRONG)
def test_options_that_cannot_be_used(options, message, no_shape_checks):
    for call in (
        lambda: ViewSettings(**options),
        lambda: ViewSettings.of("tpt_classify", **options),
        lambda: augment_views(torch.zeros(3, 40, 60), SMALL, **options),
        lambda: augment_views([], SMALL, **options),
        lambda: ViewsDataset([], SMALL, **options),
    ):
        with pytest.raises(ValueError, match=message):
            call()


def test_one_view_is_enough():
    assert ViewSettings(n_views=1).n_views == 1


def test_the_defaults_are_augment_views_own():
    own = {name: p.default for name, p in inspect.signature(augment_views).parameters.items()}
    assert vars(ViewSettings()) == {name: own[name] for name in vars(ViewSettings())}
    assert set(vars(ViewSettings())) == set(ViewOptions.__annotations__) == set(own) - {"image", "spec", "device"}
    assert ViewSettings.of("tpt_classify") == ViewSettings()


def test_keywords_become_settings():
    options = {"n_views": 8, "recipe": "augmix", "seed": 3, "scale": (0.5, 1.0), "ratio": (1.0, 1.0), "severity": 2}
    assert vars(ViewSettings.of("tpt_classify", **options)) == options


@pytest.mark.parametrize(("options", "message"), [
    ({"n_view": 8}, "tpt_classify: unknown keyword 'n_view'; did you mean 'n_views'?"),
    ({"n_views": 8, "recipes": "crop"}, "tpt_classify: unknown keyword 'recipes'; did you mean 'recipe'?"),
    (
        {"q": 1},
        "tpt_classify: unknown keyword 'q'; it takes n_views, recipe, scale, ratio, severity, seed",
    ),
])  # fmt: skip
def test_an_unknown_keyword_is_refused_with_a_hint(options, message, no_shape_checks):
    with pytest.raises(TypeError) as caught:
        ViewSettings.of("tpt_classify", **options)
    assert str(caught.value) == message


def test_a_dataset_names_itself_when_a_keyword_is_unknown(no_shape_checks):
    with pytest.raises(TypeError, match=r"^ViewsDataset: unknown keyword 'n_view'; did you mean 'n_views'\?$"):
        ViewsDataset([], SMALL, n_view=8)


def test_a_generator_is_drawn_from_once(no_shape_checks):
    stream = generator(8)
    first, second = (int(torch.randint(2**62, (), generator=g)) for g in [generator(8)] for _ in range(2))
    assert ViewSettings.of("tpt_classify", seed=stream).seed == first
    assert ViewSettings.of("tpt_classify", seed=stream).seed == second
    with pytest.raises(TypeError, match=r"seed must be an int or a torch\.Generator, but got float"):
        ViewSettings.of("tpt_classify", seed=1.5)


def test_settings_can_be_compared_hashed_and_not_changed():
    assert ViewSettings(seed=1) == ViewSettings(seed=1) != ViewSettings(seed=2)
    assert len({ViewSettings(), ViewSettings(n_views=64), ViewSettings(n_views=63)}) == 2
    with pytest.raises(dataclasses.FrozenInstanceError):
        ViewSettings().n_views = 3


def test_to_dict_is_json(no_shape_checks):
    settings = ViewSettings(n_views=8, recipe="augmix", seed=5, scale=(0.5, 1), ratio=(1, 1), severity=2)
    written = settings.to_dict()
    assert json.loads(json.dumps(written)) == written
    assert written == {
        "n_views": 8, "recipe": "augmix", "seed": 5, "scale": [0.5, 1.0], "ratio": [1.0, 1.0], "severity": 2.0,
    }  # fmt: skip


def test_equal_settings_give_equal_json_and_others_do_not(no_shape_checks):
    a, b = ViewSettings(scale=(1, 1), severity=1), ViewSettings(scale=(1.0, 1.0), severity=1.0)
    assert a == b
    assert json.dumps(a.to_dict()) == json.dumps(b.to_dict())
    for change in (
        {"n_views": 2},
        {"recipe": "augmix"},
        {"seed": 1},
        {"scale": (0.1, 1)},
        {"ratio": (1, 1)},
        {"severity": 2},
    ):
        assert json.dumps(ViewSettings(**change).to_dict()) != json.dumps(ViewSettings().to_dict())


def own_recipe(pixels, size, n, generator, strength=1):
    return torch.zeros(n, 3, *size)


class Recipe:
    def __init__(self, strength):
        self.strength = strength

    def __call__(self, *_):
        raise AssertionError


def test_a_recipe_of_your_own_is_recorded_by_its_content():
    def said(recipe):
        return ViewSettings(recipe=recipe).to_dict()["recipe"]

    assert re.fullmatch(rf"{__name__}\.own_recipe#\w{{16}}", said(own_recipe))
    assert re.fullmatch(rf"{__name__}\.own_recipe#\w{{16}}\(strength=2\)", said(partial(own_recipe, strength=2)))
    assert re.fullmatch(rf"{__name__}\.Recipe#\w{{16}}", said(Recipe(1)))
    assert said(Recipe(1)) == said(Recipe(1)) != said(Recipe(2))
    with pytest.raises(ValueError, match="cannot be described by its content"):
        said(Recipe(i for i in range(3)))
