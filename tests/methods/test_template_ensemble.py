"""The ensemble of templates against CLIP's own computation in float64, and what is kept of it."""

import functools

import pytest
import torch
from oracles.tpt import float64, text_forward
from support.cases import model_of
from support.prompting import cocoop, coop, unit, words
from support.zoo import fresh

import tpt_lib
from tpt_lib import class_prompts, template_ensemble_predict, zero_shot_predict

SOME = ["a photo of a {}.", "the {}.", "a {} in a video game."]
few = functools.partial(template_ensemble_predict, templates=SOME)


@pytest.mark.parametrize("name", ["open_clip-vit", "transformers-clip", "open_clip-siglip"])
def test_the_ensemble_is_clips(name):
    """Against the model's own forward in float64, template by template, as CLIP's notebook does."""
    import open_clip

    model = fresh(name)
    features = unit(2, 16)
    names = ["cat", "red_panda", "dog"]
    texts = [fill("{}") for fill in open_clip.OPENAI_IMAGENET_TEMPLATES]
    templates = None if name == "open_clip-vit" else texts[:9]
    found = template_ensemble_predict(model, class_prompts(model, names), features, templates=templates)
    oracle, rows = float64(model.module), []
    for class_name in ["cat", "red panda", "dog"]:
        filled = [text.format(class_name) for text in (templates or texts)]
        of_class = text_forward(oracle, model.tokenize(filled))
        of_class = (of_class / of_class.norm(dim=-1, keepdim=True)).mean(dim=0)
        rows.append(of_class / of_class.norm())
    assert len(filled) == (80 if templates is None else 9)
    want = float(model.logit_scale) * features[0].double() @ torch.stack(rows).T + float(model.logit_bias)
    torch.testing.assert_close(found.logits.double(), want, atol=1e-4, rtol=1e-4)


def test_it_is_zero_shot_with_several_templates():
    model, features = model_of(), unit(2, 3, 16)
    several = class_prompts(model, words().names, template=SOME)
    assert torch.equal(few(model, words(), features).logits, zero_shot_predict(model, several, features).logits)


@pytest.mark.parametrize("prompts", [coop, cocoop])
def test_the_context_of_the_prompts_is_not_used(prompts):
    model, features = model_of(), unit(2, 16)
    assert torch.equal(few(model, prompts(), features).logits, few(model, words(), features).logits)


def test_text_features_are_kept_while_the_weights_are_the_same(monkeypatch):
    model, calls = fresh("open_clip-vit"), []
    real = tpt_lib.text.initial.encode_prompts
    monkeypatch.setattr("tpt_lib.text.initial.encode_prompts", lambda *given: calls.append(1) or real(*given))
    prompts, features = words(model), unit(2, 16)
    first = few(model, prompts, features)
    assert torch.equal(few(model, prompts, features).logits, first.logits)
    assert len(calls) == 1
    one = template_ensemble_predict(model, prompts, features, templates=SOME[:1])
    assert len(calls) == 2
    torch.testing.assert_close(one.logits, zero_shot_predict(model, prompts, features).logits)
    with torch.no_grad():
        model.module.ln_final.weight.mul_(-1)
    assert not torch.allclose(few(model, prompts, features).logits, first.logits)


def test_the_packed_engine_is_proven_once_for_all_templates(monkeypatch):
    model, calls = fresh("open_clip-vit"), []
    real = tpt_lib.text.choose.full_length_features
    monkeypatch.setattr("tpt_lib.text.choose.full_length_features", lambda *given: calls.append(1) or real(*given))
    few(model, words(model), unit(2, 16))
    assert len(calls) == 1


@pytest.mark.usefixtures("no_shape_checks")
@pytest.mark.parametrize("templates", ["a {}", []])
def test_bad_templates(templates):
    with pytest.raises(ValueError, match="templates must be a list of one or more texts, but got"):
        template_ensemble_predict(model_of(), words(), unit(3, 16), templates=templates)


def test_what_it_is_given_is_checked_before_the_templates_are_encoded(monkeypatch):
    monkeypatch.setattr("tpt_lib.methods.template_ensemble.class_prompts", None)
    with pytest.raises(ValueError, match="template_ensemble_predict: features must have unit length"):
        few(model_of(), words(), 2 * unit(3, 16))
    with pytest.raises(ValueError, match="these prompts were made for another model"):
        few(fresh("open_clip-vit"), words(), unit(3, 16))
