"""Methods and prompts are told apart by what a run writes about them."""

import functools
import re
import threading
from dataclasses import replace

import pytest
import torch
from support.zoo import fresh

import tpt_lib
from tpt_lib import tpt_predict
from tpt_lib.evaluation.run_identity import describe
from tpt_lib.methods import base, method


@functools.cache
def model():
    return fresh("open_clip-vit")


def prompts(names=("cat", "dog"), **options):
    return tpt_lib.class_prompts(model(), names, **options)


def test_the_outer_keywords_of_nested_partials_count():
    inner = functools.partial(tpt_lib.tpt_predict, steps=2, lr=0.1)
    inner.note = "an attribute, without which Python would merge the two"
    outer = functools.partial(inner, steps=3, objective=functools.partial(tpt_lib.marginal_entropy))
    assert describe(outer) == (
        "tpt_lib.methods.tpt.tpt_predict(lr=0.1, objective=tpt_lib.objectives.marginal_entropy(), steps=3)"
    )


def scaled(k, model, prompts, features):
    return tpt_lib.zero_shot_predict(model, prompts, k * features)


def test_positional_arguments_count():
    assert re.fullmatch(r".*test_run_identity\.scaled#\w{16}\(2\)", describe(functools.partial(scaled, 2)))
    assert describe(functools.partial(scaled, 2)) != describe(functools.partial(scaled, 3))


def test_tensors_count_in_full():
    one, other = torch.zeros(2000), torch.zeros(2000)
    other[1000] = 1
    assert repr(one) == repr(other)
    assert describe(functools.partial(tpt_predict, context=one)) != describe(
        functools.partial(tpt_predict, context=other)
    )


def test_what_has_no_content_needs_a_name(monkeypatch):
    monkeypatch.setattr(base, "_entries", dict(base._entries))
    lock = threading.Lock()

    def locked(model, prompts, features, **options):
        with lock:
            return tpt_lib.zero_shot_predict(model, prompts, features)

    with pytest.raises(
        ValueError, match=r"cannot tell this method .*locked: a _thread.lock cannot .*describe\(\).* @method\(name=…\)"
    ):
        describe(locked)
    method(name="locked", title="locked", paper="none")(locked)
    assert describe(locked) == "the method 'locked'"
    assert describe(functools.partial(locked, k=2)) == "the method 'locked'(k=2)"
    with pytest.raises(ValueError, match="cannot tell this method"):
        describe(functools.partial(locked, k=lock))


@pytest.mark.parametrize(
    "other",
    [{"names": ("cat", "hen")}, {"names": ("dog", "cat")}, {"template": "a sketch of a {}."}, {"context": "one nice"}],
    ids=str,
)
def test_other_prompts_are_another_run(other):
    assert describe(tpt_lib.tpt_predict, prompts()) == describe(tpt_lib.tpt_predict, prompts())
    assert describe(tpt_lib.tpt_predict, prompts()) != describe(tpt_lib.tpt_predict, prompts(**other))


def test_several_prompts_are_told_one_by_one():
    one, two = prompts(), prompts(context="one nice")
    both = describe(tpt_lib.methods.prompt_ensemble_predict, [one, two])
    assert both.count("prompts ") == 2
    assert both != describe(tpt_lib.methods.prompt_ensemble_predict, [two, one])


def test_further_templates_are_part_of_the_prompts():
    first, second, third = (prompts(template=f"{word} {{}}.") for word in ("a", "one", "my"))

    def with_others(*others):
        several = replace(first)
        object.__setattr__(several, "others", others)
        return describe(tpt_lib.tpt_predict, several)

    assert with_others() == describe(tpt_lib.tpt_predict, first)
    assert len({with_others(), with_others(second), with_others(third), with_others(second, third)}) == 4


def test_free_name_tokens_are_part_of_the_prompts():
    tokens = torch.zeros(2, 1, prompts().context.shape[-1])
    one, two = (prompts(name_tokens=tokens + shift) for shift in (0, 1))
    assert describe(tpt_lib.tpt_predict, one) != describe(tpt_lib.tpt_predict, two)
