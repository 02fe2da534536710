"""Several prompts, each with its method: the mean of the probabilities that each gives alone."""

import functools

import pytest
import torch
from support.cases import model_of
from support.prompting import cocoop, coop, unit, words

from tpt_lib import template_ensemble_predict, tpt_predict, zero_shot_predict
from tpt_lib.methods import prompt_ensemble_predict

few = functools.partial(template_ensemble_predict, templates=["a photo of a {}.", "the {}."])


@pytest.mark.parametrize("shape", [(3, 16), (2, 3, 16)])
@pytest.mark.parametrize("method", [zero_shot_predict, tpt_predict])
def test_it_is_the_mean(method, shape):
    model, features, ways = model_of(), unit(*shape), [words(), coop(), cocoop(seed=1)]
    alone = torch.stack([method(model, way, features).probs for way in ways])
    assert (alone[0] - alone[1]).abs().max() > 0.01, "the ways must differ for their mean to say something"
    found = prompt_ensemble_predict(model, ways, features, method=method)
    torch.testing.assert_close(found.probs, alone.mean(dim=0), atol=1e-5, rtol=1e-4)
    assert found.names == ways[0].names


def test_zero_shot_is_the_default_and_each_may_have_its_own():
    model, features, ways = model_of(), unit(3, 16), [words(), coop()]
    default, named = (
        prompt_ensemble_predict(model, ways, features, **options) for options in ({}, {"method": zero_shot_predict})
    )
    assert torch.equal(default.logits, named.logits)
    both = prompt_ensemble_predict(model, ways, features, method=[few, tpt_predict])
    want = (few(model, ways[0], features).probs + tpt_predict(model, ways[1], features).probs) / 2
    torch.testing.assert_close(both.probs, want, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("times", [1, 3])
def test_one_prompt_is_the_method_itself(times):
    model, features = model_of(), unit(3, 16)
    want = zero_shot_predict(model, cocoop(), features).probs
    torch.testing.assert_close(prompt_ensemble_predict(model, [cocoop()] * times, features).probs, want)


@pytest.mark.usefixtures("no_shape_checks")
def test_bad_input():
    model, features = model_of(), unit(3, 16)
    with pytest.raises(TypeError, match="prompts must be a list of one or more ClassPrompts"):
        prompt_ensemble_predict(model, words(), features)
    with pytest.raises(TypeError, match="one or more"):
        prompt_ensemble_predict(model, [], features)
    with pytest.raises(ValueError, match="there are 2 prompts, but 1 methods"):
        prompt_ensemble_predict(model, [words(), coop()], features, method=[tpt_predict])
    with pytest.raises(ValueError, match=r"the same classes in the same order, but one has \['dog', 'cat'\] and anoth"):
        prompt_ensemble_predict(model, [words(), words(names=["dog", "cat"])], features)
