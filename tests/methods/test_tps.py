"""TPS against a plain program: the closed form, the loop, the variants, and what the released code does otherwise."""

import pytest
import torch
from oracles.followers import plain_tps
from support.text_features import case_of

from tpt_lib.methods import tps_predict, tune_features

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


@pytest.mark.parametrize(("variant", "shared"), VARIANTS)
def test_the_closed_form_is_one_step_of_the_loop(variant, shared, monkeypatch):
    model, prompts, features, _ = case_of(3)
    closed = tps_predict(model, prompts, features, variant=variant, shared=shared)
    monkeypatch.setattr(tune_features, "one_step", tune_features.several_steps)
    looped = tps_predict(model, prompts, features, variant=variant, shared=shared)
    torch.testing.assert_close(closed.logits, looped.logits, atol=1e-3, rtol=0)
    torch.testing.assert_close(closed.loss_after, looped.loss_after, atol=1e-4, rtol=0)


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
