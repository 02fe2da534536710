"""Every function that passes keywords on refuses unknown ones, before it looks at anything else."""

import functools
import inspect

import pytest
import torch

import tpt_lib
from tpt_lib import methods, paper, views
from tpt_lib.methods import MethodEntry
from tpt_lib.methods.base import check_arguments

ROOMS = [tpt_lib.evaluation, methods, tpt_lib.models, paper, tpt_lib.plots, tpt_lib.prompts, tpt_lib.text, views]
FOREIGN = {"load_open_clip", "load_transformers", "save_prompt"}  # keywords of other libraries, entries of a file
NOTHING = object()  # any use of it fails

CALLS = {
    "ViewsDataset": lambda **wrong: views.ViewsDataset([], NOTHING, **wrong),
    "budget_table": lambda **wrong: paper.budget_table(NOTHING, NOTHING, prompts(), **wrong),
    "classify": lambda **wrong: tpt_lib.classify(NOTHING, [], prompts(), **wrong),
    "compare": lambda **wrong: tpt_lib.compare(NOTHING, NOTHING, prompts(), **wrong),
    "encode_dataset": lambda **wrong: tpt_lib.encode_dataset(NOTHING, data(), "nowhere", **wrong),
    "evaluate": lambda **wrong: tpt_lib.evaluate(NOTHING, data(), "tpt", out="nowhere", **wrong),
    "fit_cocoop": lambda **wrong: tpt_lib.fit_cocoop(NOTHING, NOTHING, NOTHING, **wrong),
    "memo_classify": lambda **wrong: tpt_lib.memo_classify(NOTHING, NOTHING, **wrong),
    "strategy_table": lambda **wrong: paper.strategy_table(NOTHING, NOTHING, prompts(), **wrong),
    "sweep_fractions": lambda **wrong: paper.sweep_fractions(NOTHING, NOTHING, prompts(), **wrong),
    "sweep_groups": lambda **wrong: paper.sweep_groups(NOTHING, NOTHING, prompts(), **wrong),
    "sweep_steps": lambda **wrong: paper.sweep_steps(NOTHING, NOTHING, prompts(), **wrong),
    "sweep_views": lambda **wrong: paper.sweep_views(NOTHING, NOTHING, prompts(), **wrong),
    "tpt_classify": lambda **wrong: tpt_lib.tpt_classify(NOTHING, NOTHING, NOTHING, **wrong),
    "tpt_predict": lambda **wrong: tpt_lib.tpt_predict(NOTHING, NOTHING, NOTHING, **wrong),
    "transfer_matrix": lambda **wrong: paper.transfer_matrix(NOTHING, [], [], out="nowhere", **wrong),
}


@functools.cache
def prompts():
    return tpt_lib.class_prompts(tpt_lib.load_tiny(), ["cat", "dog"])


def data():
    return tpt_lib.EvalSet("x", [(torch.zeros(3, 8, 8), 0)], ("cat", "dog"))


def passes_keywords_on(value):
    call = value.__init__ if inspect.isclass(value) else value
    kinds = [p.kind for p in inspect.signature(call).parameters.values()] if inspect.isfunction(call) else []
    return inspect.Parameter.VAR_KEYWORD in kinds and not getattr(value, "_is_protocol", False)


def test_every_function_that_passes_keywords_on_is_listed():
    public = {name: getattr(room, name) for room in [tpt_lib, *ROOMS] for name in room.__all__}
    own = {name: value for name, value in public.items() if getattr(value, "__module__", "").startswith("tpt_lib.")}
    assert {name for name, value in own.items() if passes_keywords_on(value)} - FOREIGN == set(CALLS)


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("wrong", ["n_veiws", "stepz", "patient"])
def test_unknown_keywords_are_refused(name, wrong, no_shape_checks):
    with pytest.raises(TypeError, match=f"keyword( argument)? '{wrong}'"):
        CALLS[name](**{wrong: 4})


@pytest.mark.parametrize("take", [
    lambda method: tpt_lib.classify(NOTHING, [NOTHING], prompts(), method=method),
    lambda method: tpt_lib.compare(NOTHING, [NOTHING], prompts(), methods={"mine": method}),
    lambda method: tpt_lib.evaluate(NOTHING, data(), {"mine": method}, out="nowhere", prompts=prompts()),
    lambda method: paper.strategy_table(NOTHING, NOTHING, prompts(), methods={"mine": method}),
    lambda method: paper.budget_table(NOTHING, NOTHING, prompts(), methods={"mine": method}),
], ids=["classify", "compare", "evaluate", "strategy_table", "budget_table"])  # fmt: skip
@pytest.mark.parametrize(("method", "says"), [
    (functools.partial(tpt_lib.tpt_predict, n_veiws=4), "unknown keyword 'n_veiws'; it takes model, prompts, features"),
    (functools.partial(tpt_lib.tpt_predict, stepz=4), r"unknown keyword 'stepz'; did you mean 'steps'\?"),
    (functools.partial(tpt_lib.average_predict, fractions=0.1), r"unknown keyword 'fractions'; did you mean 'fraction'\?"),
    (functools.partial(functools.partial(tpt_lib.tpt_predict, stepz=1), lr=1), "unknown keyword 'stepz'"),
    (functools.partial(tpt_lib.tpt_predict, features=4), "cannot be called with 3 arguments"),
    (functools.partial(tpt_lib.average_predict, 1), "too many positional arguments"),
    (lambda model, prompts: None, "too many positional arguments"),
    (lambda model, prompts, features, *, must: None, "missing a required argument: 'must'"),
], ids=range(8))  # fmt: skip
def test_methods_that_cannot_be_called_are_refused_before_an_image_is_read(take, method, says, no_shape_checks):
    with pytest.raises(TypeError, match=says):
        take(method)


def test_what_cannot_be_checked_is_let_through():
    def passing_on(model, prompts, features, **more):
        return more

    def unknown_names(model: "Nowhere", prompts, features):  # noqa: F821
        return model

    for function in (functools.partial(passing_on, anything=1), unknown_names, print, MethodEntry):
        check_arguments("here", function, 3)
    assert methods.get_method(passing_on).predict is passing_on


def test_a_fit_that_cannot_be_called_is_refused_before_it_learns(no_shape_checks):
    with pytest.raises(TypeError, match=r"transfer_matrix: fit: unknown keyword 'epoch'; did you mean 'epochs'\?"):
        paper.transfer_matrix(NOTHING, [], [], out="nowhere", fit=functools.partial(tpt_lib.fit_coop, epoch=3))
