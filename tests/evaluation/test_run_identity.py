"""Methods and prompts are told apart by what a run writes about them."""

import functools
from dataclasses import replace

import pytest
import torch
from support.zoo import fresh

import tpt_lib
from tpt_lib.evaluation.run_identity import describe


@functools.cache
def model():
    return fresh("open_clip-vit")


def prompts(names=("cat", "dog"), **options):
    return tpt_lib.class_prompts(model(), names, **options)


def test_the_outer_keywords_of_nested_partials_count():
    inner = functools.partial(tpt_lib.tpt_predict, steps=2, lr=0.1)
    inner.note = "an attribute, without which Python would merge the two"
    outer = functools.partial(inner, steps=3, objective=functools.partial(tpt_lib.marginal_entropy))
    assert describe(outer, []) == (
        "tpt_lib.methods.tpt.tpt_predict(lr=0.1, objective=tpt_lib.objectives.marginal_entropy() on , steps=3) on "
    )


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
