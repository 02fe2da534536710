"""Methods of every kind as cases with their prompts, how a case runs its method, and what is refused."""

import functools

import pytest
import torch
from support.cases import model_of
from support.prompting import coop, unit, words

import tpt_lib
from tpt_lib import Prediction, get_method, tpt_predict, zero_shot_predict
from tpt_lib.methods import MethodEntry, OnlineMethod, base, method, prompt_ensemble_predict
from tpt_lib.methods.cases import Case, as_cases, rewards_of

counting = OnlineMethod(init=lambda model, prompts: 0, step=lambda model, prompts, state, features: (state + 1, None))


def mine(model, prompts, features):
    return zero_shot_predict(model, prompts, features)


@pytest.fixture
def own_registry(monkeypatch):
    monkeypatch.setattr(base, "_entries", dict(base._entries))


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
        ([], "caller: methods is empty; pass one or more, such as"),
        ({}, "caller: methods is empty"),
        (
            ["tpt", functools.partial(tpt_predict, steps=2)],
            "caller: two methods have the same name; pass a dict with a name",
        ),
        (
            {"mine": counting},
            "caller: 'mine' is an online method, but caller runs episodic methods; pass it to tpt_lib.methods.stream",
        ),
        ("tent", "caller: 'TENT' is an online method, but caller runs episodic methods"),
        (
            MethodEntry("batches", "batches", mine, needs=("images",)),
            "caller: 'batches' needs images, but caller runs episodic methods on features or views; declare one",
        ),
        ({"mine": mine}, r"caller: 'mine' needs a reward; pass reward=\(model, prompts\) of a second CLIP"),
        (["nothing"], "there is no method 'nothing'"),
        (
            {"CoOp": ("zero_shot", prompts, 3)},
            r"caller: 'CoOp' must be a method or a pair \(method, prompts\), but got 3 parts",
        ),
    ]:
        with pytest.raises(ValueError, match=message):
            as_cases("caller", methods, prompts)


def test_settings_that_a_method_does_not_take_are_refused():
    with pytest.raises(TypeError, match=r"^caller: 'TPT': unknown keyword 'step'; did you mean 'steps'\?"):
        as_cases("caller", functools.partial(tpt_predict, step=2), words())


def test_online_methods_are_accepted_on_request():
    (case,) = as_cases("caller", "tda", words(), online=True)
    assert (case.name, case.entry) == ("TDA", get_method("tda"))


@pytest.mark.parametrize(("needs", "kinds"), [
    (("features",), (True, False, False)),
    (("features", "reward"), (True, False, False)),
    (("views",), (False, True, False)),
    (("images",), (False, False, True)),
])  # fmt: skip
def test_what_a_case_needs(needs, kinds):
    case = Case("mine", MethodEntry("mine", "mine", mine, needs=needs), words())
    assert (case.needs_features, case.needs_views, case.needs_batches) == kinds


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
    assert all(given.equal(view) for given, view in zip(seen, views, strict=True))


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


def rewarded(seen):
    """An entry of a method that needs a reward, and records what it is given."""

    def method(model, prompts, features, *, reward):
        seen.append([tuple(one.shape) for one in reward])
        return zero_shot_predict(model, prompts, features)

    return MethodEntry("mine", "mine", method, needs=("features", "reward"))


def test_a_case_gives_the_similarities_under_each_reward_model():
    model, prompts, seen = model_of(), words(), []
    (case,) = as_cases("caller", rewarded(seen), prompts, reward=[(model, prompts), (model, coop())])
    assert len(case.rewards) == 2
    judged = [[torch.rand(3, 4), torch.rand(3, 4)] for _ in range(5)]
    assert len(case.predict(model, list(unit(5, 3, 16)), [], judged)) == 5
    case.predict(model, [unit(3, 16)], [], judged[:1])
    assert seen == [[(5, 3, 4)] * 2, [(3, 4)] * 2]


def test_other_methods_are_not_given_the_reward():
    seen, prompts = [], words()
    cases = as_cases("caller", {"a": rewarded(seen), "b": "zero_shot"}, prompts, reward=(model_of(), prompts))
    assert [len(case.rewards) for case in cases] == [1, 0]
    assert len(rewards_of(cases)) == 1
    for case in cases:
        case.predict(model_of(), [unit(3, 16)], [], [[torch.rand(3, 4)]])
    assert len(seen) == 1


@pytest.mark.usefixtures("no_shape_checks")
def test_rewards_that_cannot_be_used():
    model, prompts = model_of(), words()
    for reward, methods, kind, message in [
        ((model, prompts), "tpt", ValueError, "caller: reward was given, but none of the methods needs one"),
        (None, "rlcf", ValueError, "caller: 'RLCF' needs a reward; pass reward="),
        ([], "rlcf", ValueError, "caller: 'RLCF' needs a reward; pass reward="),
        (
            [model],
            "rlcf",
            TypeError,
            r"reward must be a pair \(model, prompts\) of a second CLIP, .* but got ModuleClip",
        ),
        ((model, ["cat"]), "rlcf", TypeError, "but got ModuleClip; class_prompts"),
        (
            (model, words(names=["cat", "dog"])),
            "rlcf",
            ValueError,
            r"the same classes in the same order, but they have \['cat'",
        ),
    ]:
        with pytest.raises(kind, match=message):
            as_cases("caller", methods, prompts, reward=reward)


def test_presets_reach_the_cases():
    prompts = words()
    own = functools.partial(tpt_lib.methods.ctpt_predict, weight=1.0)
    cases = as_cases("caller", {"a": "ctpt", "b": own, "c": "tpt"}, prompts, preset="imagenet-a")
    assert [getattr(case.entry.predict, "keywords", {}) for case in cases] == [{"weight": 20.0}, {"weight": 1.0}, {}]


def test_what_a_method_writes_into_its_inputs_stays_with_it():
    def writing(model, prompts, features, *, reward):
        found = zero_shot_predict(model, prompts, features)
        features.zero_()
        reward[0].zero_()
        return found

    entry = MethodEntry("mine", "mine", writing, needs=("features", "reward"))
    (case,) = as_cases("caller", entry, words(), reward=(model_of(), words()))
    judged, features = [[torch.ones(3, 4)], [torch.ones(3, 4)]], unit(2, 3, 16)
    case.predict(model_of(), [features[0]], [], judged[:1])
    case.predict(model_of(), list(features), [], judged)
    assert all(one.all() for (one,) in judged)
    assert torch.equal(features, unit(2, 3, 16))
