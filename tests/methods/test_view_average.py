"""The averaged prediction on cases computed by hand, and its laws."""

import hypothesis
import hypothesis.strategies as st
import pytest
import torch
from support.cases import model_of
from support.prompting import cocoop, saying, unit, with_logits, words

from tpt_lib import average_predict, vote_predict, zero_shot_predict


def test_by_hand():
    case = saying([[0.6, 0.4, 0, 0], [0.1, 0.5, 0.4, 0], [0.2, 0.6, 0.1, 0.1]])
    found = average_predict(*case)
    torch.testing.assert_close(found.probs, torch.tensor([0.3, 0.5, 0.5 / 3, 0.1 / 3]))
    assert (found.label, found.zero_shot.label, found.tuned, found.selected) == ("b", "a", None, None)


def test_of_the_confident_by_hand():
    case = saying([[0.25, 0.25, 0.25, 0.25], [0.98, 0.02, 0, 0], [0.3, 0.3, 0.2, 0.2], [0, 0.9, 0.1, 0]])
    found = average_predict(*case, fraction=0.5)
    assert found.selected.tolist() == [1, 3]
    torch.testing.assert_close(found.probs, torch.tensor([0.49, 0.46, 0.05, 0.0]))


def test_several_images_by_hand():
    model, prompts, views = saying([[[0.6, 0.4, 0, 0], [0.2, 0.8, 0, 0]], [[0, 0, 0.5, 0.5], [0, 0, 0.2, 0.8]]])
    found = average_predict(model, prompts, views)
    torch.testing.assert_close(found.probs, torch.tensor([[0.4, 0.6, 0, 0], [0, 0, 0.35, 0.65]]))
    assert found.zero_shot.labels == ["a", "c"]


@pytest.mark.parametrize("method", [average_predict, vote_predict])
def test_a_class_that_no_view_gives_anything_stays_finite(method):
    model, prompts, _ = saying([[1.0, 0, 0, 0]])
    far = torch.tensor([[500.0, 0, -500, -1000], [400.0, 0, -500, -1000]])
    found = method(model, prompts, with_logits(far))
    assert found.logits.isfinite().all()
    assert found.probs[1:].max() < 1e-6


@hypothesis.settings(max_examples=6)
@hypothesis.given(st.integers(1, 9), st.integers(0, 10**6))
@pytest.mark.slow
def test_laws(number, seed):
    model, features = model_of(), unit(number, 16, seed=seed)
    for prompts in (words(), cocoop()):
        zero = zero_shot_predict(model, prompts, features)
        one = features[:1]
        for method in (average_predict, vote_predict):
            assert method(model, prompts, one).index == zero.index
            everything = method(model, prompts, features, fraction=1.0)
            torch.testing.assert_close(everything.logits, method(model, prompts, features).logits)
            torch.testing.assert_close(everything.zero_shot.logits, zero.logits)
        torch.testing.assert_close(average_predict(model, prompts, one).probs, zero.probs)
        torch.testing.assert_close(average_predict(model, prompts, one.expand(5, -1)).probs, zero.probs)


@pytest.mark.usefixtures("no_shape_checks")
@pytest.mark.parametrize("method", [average_predict, vote_predict])
def test_bad_fractions(method):
    for fraction in (0, 1.5, -0.1):
        with pytest.raises(ValueError, match=f"fraction must be above 0 and at most 1, but got {fraction}"):
            method(model_of(), words(), unit(3, 16), fraction=fraction)
