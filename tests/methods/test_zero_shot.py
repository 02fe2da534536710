"""Zero-shot by hand, as TPT reports it, and how often it runs the text tower."""

import pytest
import torch
from support.cases import model_of
from support.prompting import cocoop, coop, saying, unit, words
from support.zoo import fresh

import tpt_lib
from tpt_lib import average_predict, class_prompts, tpt_predict, zero_shot_predict


def test_by_hand():
    model, prompts, views = saying([[0.6, 0.4, 0, 0], [0.1, 0.5, 0.4, 0]])
    found = zero_shot_predict(model, prompts, views)
    torch.testing.assert_close(found.probs, torch.tensor([0.6, 0.4, 0, 0]))
    assert found.label == "a"
    assert found.zero_shot is found
    assert found.tuned is found.selected is None


@pytest.mark.parametrize("prompts", [words, coop, cocoop])
def test_it_is_that_of_tpt(prompts):
    model, features = model_of(), unit(4, 16)
    zero = zero_shot_predict(model, prompts(), features)
    tuned = tpt_predict(model, prompts(), features)
    torch.testing.assert_close(zero.logits, tuned.zero_shot.logits)
    assert not torch.allclose(zero.logits, tuned.logits)


def test_several_templates_are_averaged_as_clip_does():
    model, features = model_of(), unit(2, 16)
    texts = ["a photo of a {}.", "the {}.", "{} in the snow"]
    each = [tpt_lib.encode_prompts(model, class_prompts(model, ["cat", "dog"], template=text)) for text in texts]
    mean = torch.stack(each).mean(dim=0)
    want = tpt_lib.class_logits(model, features, mean / mean.norm(dim=-1, keepdim=True))[0]
    found = zero_shot_predict(model, class_prompts(model, ["cat", "dog"], template=texts), features)
    torch.testing.assert_close(found.logits, want, atol=1e-4, rtol=1e-5)


def count_text(monkeypatch):
    """A list that grows with each encoding of prompts."""
    calls, real = [], tpt_lib.text.initial.encode_prompts
    monkeypatch.setattr("tpt_lib.text.initial.encode_prompts", lambda *given: calls.append(1) or real(*given))
    return calls


def test_text_features_are_kept_while_the_weights_are_the_same(monkeypatch):
    model, calls = fresh("open_clip-vit"), count_text(monkeypatch)
    prompts, features = words(model), unit(2, 16)
    first = zero_shot_predict(model, prompts, features)
    assert torch.equal(zero_shot_predict(model, prompts, features).logits, first.logits)
    average_predict(model, prompts, features)
    assert len(calls) == 1
    with torch.no_grad():
        model.module.ln_final.weight.mul_(-1)
    assert not torch.allclose(zero_shot_predict(model, prompts, features).logits, first.logits)
    assert len(calls) == 2
    prompts.forget()
    zero_shot_predict(model, prompts, features)
    assert len(calls) == 3


def test_tuning_after_it_still_tunes():
    model, prompts, features = model_of(), words(), unit(4, 16)
    fresh_start = tpt_predict(model, words(), features)
    zero_shot_predict(model, prompts, features)
    tuned = tpt_predict(model, prompts, features)
    assert tuned.tuned
    assert torch.equal(tuned.logits, fresh_start.logits)
    assert not torch.allclose(tuned.context, prompts.context)
