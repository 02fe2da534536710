"""TPS against a plain program: the closed form, the loop, the variants, and what the released code does otherwise."""

import dataclasses

import pytest
import torch
from oracles.followers import plain_tps
from support.cases import model_of
from support.prompting import unit, words
from support.text_features import case_of

from tpt_lib.logits import unchecked_logits
from tpt_lib.methods import tps_predict, tune_features
from tpt_lib.methods.moved_features import Moving, one_step
from tpt_lib.objectives import select_confident
from tpt_lib.text import load_text_features, save_text_features

VARIANTS = [("shift", False), ("scale", False), ("both", False), ("shift", True), ("both", True)]


@pytest.mark.parametrize(("variant", "shared"), VARIANTS)
@pytest.mark.parametrize("steps", [0, 1, 3])
def test_as_the_plain_program(variant, shared, steps):
    model, prompts, features, text = case_of(3)
    found = tps_predict(model, prompts, features, variant=variant, shared=shared, steps=steps)
    for one, views in zip(found, features, strict=True):
        want, _ = plain_tps(views, text, 100.0, steps, variant=variant, shared=shared)
        torch.testing.assert_close(one.logits.double(), want, atol=5e-3 if steps < 2 else 2e-2, rtol=0)
        assert bool(one.tuned) == (steps > 0)
        assert len(one.selected) == 6
        if steps:
            assert one.loss_after < one.loss_before
            assert not torch.allclose(one.logits, one.zero_shot.logits, atol=0.05)


def same_by_the_loop(monkeypatch, *case, **settings):
    closed = tps_predict(*case, **settings)
    monkeypatch.setattr(tune_features, "one_step", tune_features.several_steps)
    looped = tps_predict(*case, **settings)
    torch.testing.assert_close(closed.logits, looped.logits, atol=1e-3, rtol=0)
    torch.testing.assert_close(closed.loss_after, looped.loss_after, atol=1e-4, rtol=0)
    assert closed.tuned.all()
    assert looped.tuned.all()


@pytest.mark.parametrize(("variant", "shared"), VARIANTS)
@pytest.mark.parametrize("lr", [5e-3, 1.0])
def test_the_closed_form_is_one_step_of_the_loop(variant, shared, lr, monkeypatch):
    """A long step shows the weight decay of a scale."""
    same_by_the_loop(monkeypatch, *case_of(3)[:3], variant=variant, shared=shared, lr=lr)


def test_the_closed_form_with_a_bias_of_logits(monkeypatch):
    model = model_of("open_clip-siglip")
    assert model.logit_bias != 0
    same_by_the_loop(monkeypatch, model, words(model), unit(2, 20, 16))


def test_the_closed_form_of_a_step_as_long_as_float32_allows(monkeypatch):
    same_by_the_loop(monkeypatch, *case_of(2)[:3], lr=1e25)


def test_one_image_is_left_as_it_was_and_the_others_are_not():
    model, _, views, text = case_of(2)
    texts = text.repeat(2, 1, 1)
    texts[1, 0, 0] = torch.nan
    logits = unchecked_logits(model, views, texts)
    moving = Moving(model, views, texts, logits, select_confident(logits), {"shift": 0.0}, False, None)
    (shift,), applied = one_step(moving, 1, 5e-3)
    assert applied.tolist() == [True, False]
    assert shift[0].any()
    assert not shift[1].any()


def test_one_image_with_the_default_settings():
    """Without a batch dimension in what comes back, and without a graph."""
    model, prompts, features, text = case_of(1)
    found = tps_predict(model, prompts, features[0].clone().requires_grad_())
    want, _ = plain_tps(features[0], text, 100.0)
    torch.testing.assert_close(found.logits.double(), want, atol=5e-3, rtol=0)
    torch.testing.assert_close(found.zero_shot.logits, 100 * text @ features[0, 0], atol=1e-3, rtol=0)
    assert found.loss_before.shape == found.loss_after.shape == found.tuned.shape == ()
    assert found.selected.shape == (6,)
    assert not found.logits.requires_grad


@pytest.mark.parametrize("reselect", [False, True])
def test_another_fraction(reselect):
    model, prompts, features, text = case_of(1)
    settings = {"fraction": 0.5, "reselect": reselect, "lr": 0.05}
    found = tps_predict(model, prompts, features[0], steps=3, **settings)
    want, _ = plain_tps(features[0], text, 100.0, 3, **settings)
    torch.testing.assert_close(found.logits.double(), want, atol=3e-2, rtol=0)
    assert len(found.selected) == 32


def test_several_steps_in_inference_mode():
    model, prompts, features, _ = case_of(2)
    want = tps_predict(model, prompts, features, steps=2)
    with torch.inference_mode():
        found = tps_predict(model, prompts, features.clone(), steps=2)
    assert torch.equal(found.logits, want.logits)


@pytest.mark.parametrize("variant", ["shift", "scale", "both"])
def test_several_steps_on_text_features_loaded_in_inference_mode(variant, tmp_path):
    model, prompts, features, _ = case_of(2)
    save_text_features(model, prompts, tmp_path / "text.safetensors")
    want = tps_predict(model, prompts, features, steps=2, variant=variant)
    again = dataclasses.replace(prompts)
    with torch.inference_mode():
        load_text_features(model, again, tmp_path / "text.safetensors")
    assert torch.equal(tps_predict(model, again, features, steps=2, variant=variant).logits, want.logits)


def test_reselecting_matters_from_the_second_step_on():
    model, prompts, features, text = case_of(6, spread=0.1)
    differ = []
    for steps in (1, 4):
        once, again = (tps_predict(model, prompts, features, steps=steps, lr=0.05, reselect=r) for r in (False, True))
        for views, one, other in zip(features, once, again, strict=True):
            want, _ = plain_tps(views, text, 100.0, steps, lr=0.05, reselect=True)
            torch.testing.assert_close(other.logits.double(), want, atol=3e-2, rtol=0)
            differ.append((steps, torch.allclose(one.logits, other.logits, atol=0.05)))
    assert all(same for steps, same in differ if steps == 1)
    assert not all(same for steps, same in differ if steps == 4)


@pytest.mark.parametrize("steps", [1, 2])
def test_what_is_not_finite_stays_as_it_was(steps):
    model, prompts, features, _ = case_of(2)
    with pytest.warns(UserWarning, match="tps_predict: a loss or gradient was not finite in 2 of 2 cases"):
        found = tps_predict(model, prompts, features, steps=steps, lr=float("inf"))
    assert not found.tuned.any()
    torch.testing.assert_close(found.logits, found.zero_shot.logits)


def test_no_text_tower(monkeypatch):
    """The text features are computed once for all images."""
    model, prompts, features, _ = case_of(2)
    want = tps_predict(model, prompts, features).logits
    monkeypatch.setattr("tpt_lib.text.initial.encode_prompts", None)
    monkeypatch.setattr("tpt_lib.text.encode.open_encoder", None)
    assert torch.equal(tps_predict(model, prompts, features).logits, want)


@pytest.mark.usefixtures("no_shape_checks")
@pytest.mark.parametrize("wrong", [{"steps": -1}, {"variant": "film"}])
def test_settings_out_of_range(wrong):
    model, prompts, features, _ = case_of(1, 4)
    with pytest.raises(
        ValueError, match=r"steps must be 0 or more and variant one of .'shift', 'scale', 'both'., but got"
    ):
        tps_predict(model, prompts, features, **wrong)
