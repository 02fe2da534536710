"""The registry, what a method may be given as, and what runs methods side by side."""

import functools
import typing

import pytest
import torch
import typing_extensions
from support.prompting import unit
from support.registry import OF_THE_PAPER

import tpt_lib
from tpt_lib import get_method, list_methods, tpt_predict, zero_shot_predict
from tpt_lib.evaluation.published import follower_numbers
from tpt_lib.methods import MethodEntry, OnlineMethod, base, method, prompt_ensemble_predict
from tpt_lib.methods.presets import PRESETS


def mine(model, prompts, features):
    return zero_shot_predict(model, prompts, features)


counting = OnlineMethod(init=lambda model, prompts: 0, step=lambda model, prompts, state, features: (state + 1, None))


@pytest.fixture
def own_registry(monkeypatch):
    monkeypatch.setattr(base, "_entries", dict(base._entries))


def test_what_is_registered():
    before = {"memo_clip", "template_ensemble", "tpt", "view_average", "view_vote", "zero_shot"}
    after = {"ctpt", "mta", "otpt", "rlcf", "rtpt", "tps", "vte", "zero"}
    assert set(list_methods()) == before | after
    for name in list_methods():
        entry = get_method(name)
        assert entry.name == name
        assert entry.title
        assert entry.paper
        assert entry.needs == {"memo_clip": ("views",), "rlcf": ("features", "reward")}.get(name, ("features",))
        assert entry.probabilities == (name not in ("view_vote", "zero"))
        assert entry.predict.__doc__
    in_the_paper = {row["method"] for table in tpt_lib.paper.paper_tables() for row in table.rows}
    later = {row.method for row in follower_numbers()}
    assert {get_method(name).published for name in list_methods()} - in_the_paper - later == {None}
    assert {get_method(name).published for name in list_methods(online=True)} - later == {None}


def test_each_way_to_name_a_method():
    tpt = get_method("tpt")
    assert tpt.predict is tpt_predict
    for same in ("TPT", "Tpt", tpt_predict, tpt):
        assert get_method(same) == tpt
    assert (
        get_method("zero-shot") == get_method("zero shot") == get_method("zero_shot") == get_method(zero_shot_predict)
    )
    assert get_method("MEMO on CLIP").name == "memo_clip"
    assert get_method("C-TPT").name == "ctpt"


def test_a_partial_keeps_its_entry_and_its_settings():
    four = functools.partial(functools.partial(tpt_predict, steps=4), lr=0.1)
    entry = get_method(four)
    assert (entry.name, entry.title, entry.predict) == ("tpt", "TPT", four)
    assert get_method(functools.partial(tpt_lib.memo_clip_predict, group="text")).needs == ("views",)
    assert get_method("tpt").predict is tpt_predict, "the registry has the function as it is"


def test_functions_that_are_not_registered_need_features():
    for function, name in ((mine, "mine"), (functools.partial(mine), "mine"), (prompt_ensemble_predict, None)):
        entry = get_method(function)
        assert entry.name == entry.title == (name or "prompt_ensemble_predict")
        assert (entry.predict, entry.needs, entry.published) == (function, ("features",), None)

    class Called:
        def __call__(self, model, prompts, features):
            return mine(model, prompts, features)

    assert get_method(Called()).name == "Called"
    assert get_method(counting).predict is counting
    of_images = OnlineMethod(counting.init, counting.step, needs=("images",))
    assert (get_method(counting).needs, get_method(of_images).needs) == (("features",), ("images",))


@pytest.mark.usefixtures("no_shape_checks")
def test_what_is_no_method():
    with pytest.raises(ValueError, match=r"there is no method 'ttp'; did you mean 'tpt'\? There are .*tpt"):
        get_method("ttp")
    with pytest.raises(TypeError, match="a method must be a name, a function or an OnlineMethod, but got int"):
        get_method(3)


@pytest.mark.parametrize(("name", "preset", "keywords"), [
    ("ctpt", "imagenet", None),
    ("ctpt", "imagenet-a", {"weight": 20.0}),
    ("otpt", "imagenet-sketch", {"weight": 2.0}),
    ("otpt", "pets", None),
    ("tps", "dtd", {"lr": 1e-3}),
    ("tps", "imagenet-r", None),
    ("rlcf", "eurosat", {"steps": 5}),
    ("zero", "eurosat", None),
])  # fmt: skip
def test_presets_are_the_authors_settings(name, preset, keywords):
    found = get_method(name, preset=preset)
    assert getattr(found.predict, "keywords", None) == keywords
    assert found.name == name
    assert get_method(name).predict is getattr(found.predict, "func", found.predict), "the registry stays as it is"


def test_a_keyword_beats_a_preset():
    mine = functools.partial(tpt_lib.methods.rlcf_predict, steps=2, lr=1.0)
    assert get_method(mine, preset="pets").predict.keywords == {"steps": 2, "lr": 1.0}
    assert get_method(functools.partial(mine, sampled=4), preset="pets").predict.keywords["steps"] == 2
    other = functools.partial(tpt_lib.methods.rlcf_predict, lr=1.0)
    assert get_method(other, preset="pets").predict.keywords == {"lr": 1.0, "steps": 5}


def test_presets_are_the_datasets_of_the_paper():
    assert set(PRESETS) == set(OF_THE_PAPER) - {"bongard-hoi"}
    for name in list_methods():
        assert set(get_method(name).presets) <= set(PRESETS)
    with pytest.raises(
        ValueError, match=r"no settings for 'mine', only for imagenet, imagenet-a, .*; leave preset out to"
    ):
        get_method("zero_shot", preset="mine")


@pytest.mark.usefixtures("own_registry")
def test_registering_a_method():
    registered = method(name="mine", title="my own", paper="none", needs=("views",), published="CLIP")(mine)
    assert registered is mine, "the function stays as it is"
    assert get_method("mine") == MethodEntry("mine", "my own", mine, "none", ("views",), "CLIP")
    presets = {"pets": {"lr": 1.0}}
    method(name="mine", title="my own", paper="none", presets=presets, probabilities=False)(mine)
    assert get_method("mine").presets == presets
    assert not get_method("mine").probabilities
    method(name="mine", title="my own", paper="none", needs=("views",), published="CLIP")(mine)
    assert get_method(mine) == get_method("my own") == get_method("mine")
    assert "mine" in list_methods()


@pytest.mark.usefixtures("own_registry")
def test_a_taken_name_is_refused():
    with pytest.raises(ValueError, match=r"the name 'tpt' is taken by <function tpt_predict.*; choose another"):
        method(name="tpt", title="mine", paper="none")(mine)
    assert get_method("tpt").predict is tpt_predict
    method(name="tpt", title="TPT", paper="again")(tpt_predict)  # as a notebook does that runs a cell again
    assert get_method("tpt").paper == "again"


def learning(*, alpha=1.0):
    return counting


@pytest.mark.usefixtures("own_registry")
def test_an_online_method_is_registered_by_what_makes_it():
    episodic = list_methods()
    method(name="learning", title="Learning", paper="none", online=True)(learning)
    assert "learning" in list_methods(online=True)
    assert list_methods() == episodic, "what runs all episodic methods does not meet it"
    assert get_method("learning").online
    assert get_method("learning").predict is learning
    entry = get_method(functools.partial(learning, alpha=2.0))
    assert (entry.name, entry.online, entry.predict.keywords) == ("learning", True, {"alpha": 2.0})
    assert get_method(counting).online
    assert not get_method("tpt").online
    assert not set(list_methods(online=True)) & set(episodic)


@pytest.mark.parametrize(("name", "preset", "keywords"), [
    ("tda", "imagenet", None),
    ("tda", "imagenet-sketch", {"alpha": 2.363, "beta": 7.45, "recipe": "views"}),
    ("tda", "pets", {"alpha": 2.0, "beta": 7.0}),
    ("boostadapter", "cars", {"alpha": 1.0, "beta": 7.0, "boost": 3}),
    ("dpe", "eurosat", {"alpha": 3.0, "beta": 8.0, "lr": 5e-5, "align": 0.2, "recipe": "plain"}),
    ("dmn", "pets", None),
])  # fmt: skip
def test_presets_of_online_methods(name, preset, keywords):
    found = get_method(name, preset=preset)
    assert getattr(found.predict, "keywords", None) == keywords
    assert isinstance(found.predict(), OnlineMethod)
    assert set(found.presets) <= set(PRESETS)


def test_a_notebook_shows_the_names_as_a_table():
    names = list_methods()
    assert names == tuple(names)
    assert repr(names) == repr(tuple(names))
    shown = names._repr_html_()
    assert shown.count("<tr>") == len(names) + 1
    assert "<td>memo_clip</td>" in shown
    assert "<td>features, reward</td>" in shown
    assert "<td>TDA</td>" in list_methods(online=True)._repr_html_()


def test_a_function_has_the_name_it_was_registered_under():
    assert base.registered_name(tpt_predict) == "tpt"
    assert base.registered_name(mine) is None


class Options(typing.TypedDict, total=False):
    steps: int


def with_options(model, prompts, features, /, *, lr=1.0, **options: typing_extensions.Unpack[Options]):
    return model


def with_anything(model, prompts, features, **more: int):
    return model


@pytest.mark.parametrize(("function", "given"), [
    (mine, 3),
    (functools.partial(mine, features=None), 2),
    (functools.partial(with_options, lr=0.1, steps=3), 3),
    (functools.partial(functools.partial(with_options, steps=3), lr=0.1), 3),
    (functools.partial(with_anything, anything=1), 3),
    (lambda model, prompts, features, **more: model, 3),
    (dict.get, 2),
])  # fmt: skip
def test_what_can_be_called_is_let_through(function, given):
    base.check_arguments("caller", function, given)


@pytest.mark.parametrize(("function", "given", "message"), [
    (functools.partial(mine, feature=3), 2, r"^caller: unknown keyword 'feature'; did you mean 'features'\?"),
    (functools.partial(with_options, step=3), 3, r"^caller: unknown keyword 'step'; did you mean 'steps'\?"),
    (functools.partial(with_options, model=3), 3, "^caller: unknown keyword 'model'; it takes lr, steps"),
    (functools.partial(functools.partial(mine, wrong=3)), 3, "^caller: unknown keyword 'wrong'"),
    (mine, 2, "^caller: cannot be called with 2 arguments: missing a required argument: 'features'"),
    (mine, 4, "^caller: cannot be called with 4 arguments: too many positional arguments"),
])  # fmt: skip
def test_what_cannot_be_called_is_refused(function, given, message):
    with pytest.raises(TypeError, match=message):
        base.check_arguments("caller", function, given)


def test_keywords_of_the_call_are_checked_too():
    base.check_arguments("caller", with_options, 3, lr=1.0, steps=2)
    with pytest.raises(TypeError, match=r"^caller: unknown keyword 'reward'; it takes model, prompts, features"):
        base.check_arguments("caller", mine, 3, reward=None)


@pytest.mark.usefixtures("no_shape_checks")
def test_features_that_cannot_be_used_are_refused():
    for features in (unit(1, 5), unit(3, 5), unit(2, 3, 5), unit(3, 5).half()):
        base.check_features("caller", features)
    of_shape = r"^caller: features must be floats of shape \(N, E\), or \(B, N, E\) for several images, .* but got "
    for features, message in [
        ([[1.0]], f"{of_shape}list"),
        (unit(3, 5).long(), rf"{of_shape}torch.int64 of shape \(3, 5\)"),
        (unit(5), rf"{of_shape}torch.float32 of shape \(5,\)"),
        (unit(2, 2, 3, 5), rf"{of_shape}torch.float32 of shape \(2, 2, 3, 5\)"),
        (torch.zeros(0, 5), rf"{of_shape}torch.float32 of shape \(0, 5\)"),
        (2 * unit(3, 5), "^caller: features must have unit length, but their lengths are 2 to 2"),
    ]:
        with pytest.raises(ValueError, match=message):
            base.check_features("caller", features)
