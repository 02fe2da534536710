"""The registry, what a method may be given as, and what runs methods side by side."""

import functools

import pytest
import torch
from support.cases import model_of
from support.prompting import coop, unit, words

import tpt_lib
from tpt_lib import Prediction, get_method, list_methods, tpt_predict, zero_shot_predict
from tpt_lib.methods import MethodEntry, OnlineMethod, base, method, prompt_ensemble_predict
from tpt_lib.methods.cases import Case, as_cases


def mine(model, prompts, features):
    return zero_shot_predict(model, prompts, features)


counting = OnlineMethod(init=lambda model, prompts: 0, step=lambda model, prompts, state, features: (state + 1, None))


@pytest.fixture
def own_registry(monkeypatch):
    monkeypatch.setattr(base, "_entries", dict(base._entries))


def test_what_is_registered():
    assert list_methods() == ("memo_clip", "template_ensemble", "tpt", "view_average", "view_vote", "zero_shot")
    for name in list_methods():
        entry = get_method(name)
        assert entry.name == name
        assert entry.title
        assert entry.paper
        assert entry.needs == (("views",) if name == "memo_clip" else ("features",))
        assert entry.predict.__doc__
    in_the_paper = {row["method"] for table in tpt_lib.paper.paper_tables() for row in table.rows}
    assert {get_method(name).published for name in list_methods()} - in_the_paper == {None}


def test_each_way_to_name_a_method():
    tpt = get_method("tpt")
    assert tpt.predict is tpt_predict
    for same in ("TPT", "Tpt", tpt_predict, tpt):
        assert get_method(same) == tpt
    assert (
        get_method("zero-shot") == get_method("zero shot") == get_method("zero_shot") == get_method(zero_shot_predict)
    )
    assert get_method("MEMO on CLIP").name == "memo_clip"


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


@pytest.mark.usefixtures("no_shape_checks")
def test_what_is_no_method():
    with pytest.raises(ValueError, match=r"there is no method 'ttp'; there are .*tpt"):
        get_method("ttp")
    with pytest.raises(TypeError, match="a method is a name, a function or an OnlineMethod, but got int"):
        get_method(3)


@pytest.mark.usefixtures("own_registry")
def test_registering_a_method():
    registered = method(name="mine", title="my own", paper="none", needs=("views",), published="CLIP")(mine)
    assert registered is mine, "the function stays as it is"
    assert get_method("mine") == MethodEntry("mine", "my own", mine, "none", ("views",), "CLIP")
    assert get_method(mine) == get_method("my own") == get_method("mine")
    assert "mine" in list_methods()


@pytest.mark.usefixtures("own_registry")
def test_a_taken_name_is_refused():
    with pytest.raises(ValueError, match=r"the name 'tpt' is taken by <function tpt_predict.*; choose another"):
        method(name="tpt", title="mine", paper="none")(mine)
    assert get_method("tpt").predict is tpt_predict
    method(name="tpt", title="TPT", paper="again")(tpt_predict)  # as a notebook does that runs a cell again
    assert get_method("tpt").paper == "again"


@pytest.mark.parametrize(("methods", "names"), [
    ("tpt", ["TPT"]),
    (tpt_predict, ["TPT"]),
    (mine, ["mine"]),
    (["zero_shot", tpt_predict, mine], ["zero-shot", "TPT", "mine"]),
    (("zero_shot", "tpt"), ["zero-shot", "TPT"]),
    ({"a": "tpt", "b": functools.partial(tpt_predict, steps=2), "c": mine}, ["a", "b", "c"]),
])  # fmt: skip
def test_methods_of_every_kind(methods, names):
    prompts = words()
    cases = as_cases("caller", methods, prompts)
    assert [case.name for case in cases] == names
    assert all(case.prompts is prompts for case in cases)
    given = (
        methods.values() if isinstance(methods, dict) else methods if isinstance(methods, list | tuple) else [methods]
    )
    assert [case.entry for case in cases] == [get_method(each) for each in given]


def test_a_method_may_have_prompts_of_its_own():
    prompts, learned = words(), coop()
    cases = as_cases("caller", {"CoOp": ("zero_shot", learned), "both": (prompt_ensemble_predict, [prompts, learned]),
                                "plain": "zero_shot"}, prompts)  # fmt: skip
    assert cases[0].prompts is learned
    assert cases[1].prompts == [prompts, learned]
    assert cases[2].prompts is prompts
    found = [case.predict(model_of(), [unit(3, 16)], []).logits for case in cases]
    assert not torch.allclose(found[0], found[2])


@pytest.mark.usefixtures("no_shape_checks", "own_registry")
def test_what_cannot_be_run_is_refused():
    prompts = words()
    method(name="rewarded", title="rewarded", paper="none", needs=("features", "reward"))(mine)
    for methods, message in [
        ([], "caller: methods is empty; pass one or more, as"),
        ({}, "caller: methods is empty"),
        (
            ["tpt", functools.partial(tpt_predict, steps=2)],
            "caller: two methods have one name; pass a dict with a name",
        ),
        (counting, "is an online method or needs features, but caller runs episodic methods on features or views"),
        ({"mine": mine}, "caller: 'mine' is an online method or needs features, reward, but caller runs"),
        (["nothing"], "there is no method 'nothing'"),
        (
            {"CoOp": ("zero_shot", prompts, 3)},
            r"caller: 'CoOp' is a method, or a pair \(method, prompts\), but got 3 parts",
        ),
    ]:
        with pytest.raises(ValueError, match=message):
            as_cases("caller", methods, prompts)


def counted(calls):
    def method(model, prompts, features):
        calls.append(tuple(features.shape))
        return zero_shot_predict(model, prompts, features)

    return method


def test_a_case_stacks_what_it_can():
    model, calls = model_of(), []
    (case,) = as_cases("caller", counted(calls), words())
    features = unit(3, 4, 16)
    batch = case.predict(model, list(features), [])
    assert calls == [(3, 4, 16)]
    torch.testing.assert_close(batch.logits, zero_shot_predict(model, words(), features).logits)
    one = case.predict(model, [features[0]], [])
    assert calls[1:] == [(4, 16)], "one image is given without a batch"
    assert len(one) == 1


def test_a_case_gives_views_one_image_at_a_time():
    seen = []

    def on_views(model, prompts, views):
        seen.append(views)
        return zero_shot_predict(model, prompts, tpt_lib.encode_views(model, views))

    views = list(torch.rand(3, 2, 3, 32, 32))
    case = Case("mine", MethodEntry("mine", "mine", on_views, needs=("views",)), words())
    assert case.needs_views
    assert len(case.predict(model_of(), [], views)) == 3
    assert all(given is view for given, view in zip(seen, views, strict=True))


@pytest.mark.parametrize(("returned", "number", "message"), [
    (lambda features: 3, 1, "mine: a method must return a Prediction of one image, but it returned int$"),
    (lambda features: torch.zeros(4), 2, "must return a Prediction of a batch of 2, but it returned Tensor; .* batch_size=1"),
    (lambda features: Prediction(tuple("abcd"), torch.zeros(4)), 2, r"of a batch of 2, but it returned one of shape \(4,\)"),
    (lambda features: Prediction(tuple("abcd"), torch.zeros(3, 4)), 2, r"a batch of 2, but .* one of shape \(3, 4\)"),
    (lambda features: Prediction(tuple("abcd"), torch.zeros(1, 4)), 1, r"of one image, but .* one of shape \(1, 4\)$"),
])  # fmt: skip
def test_a_case_checks_what_a_method_returns(returned, number, message):
    def mine(model, prompts, features):
        return returned(features)

    (case,) = as_cases("caller", mine, words())
    with pytest.raises(TypeError, match=message):
        case.predict(model_of(), [unit(3, 16)] * number, [])
