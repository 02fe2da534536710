"""Baselines on hand-computed cases, their laws, and what goes wrong."""

import functools
import math

import hypothesis
import hypothesis.strategies as st
import pytest
import torch
import torch.nn.functional as F
from oracles.tpt import float64, text_forward
from support.cases import meta_net, model_of
from support.zoo import fresh

import tpt_lib
from tpt_lib import (
    average_predict,
    class_prompts,
    template_ensemble_predict,
    tpt_predict,
    vote_predict,
    zero_shot_predict,
)
from tpt_lib.methods import prompt_ensemble_predict
from tpt_lib.prompts.contexts import LearnedPrompt

NAMES = ["cat", "red panda", "kite (bird of prey)", "dog"]
SOME = ["a photo of a {}.", "the {}.", "a {} in a video game."]
few = functools.partial(template_ensemble_predict, templates=SOME)
METHODS = [zero_shot_predict, few, average_predict, vote_predict]


def unit(*shape, seed=0):
    return F.normalize(torch.randn(shape, generator=torch.Generator().manual_seed(seed)), dim=-1)


def words(model=None, names=NAMES):
    return class_prompts(model or model_of(), names)


def coop(seed=0, model=None):
    model = model or model_of()
    return class_prompts(model, NAMES, context=3 * tpt_lib.gaussian_context(model, 4, sigma=1.0, seed=seed))


def cocoop(seed=0):
    context = tpt_lib.gaussian_context(model_of(), 4, sigma=1.0, seed=seed)
    return class_prompts(model_of(), NAMES, context=LearnedPrompt(context, meta_net()))


class Said:
    """A model whose logits are the features: scale 1, text features the unit vectors."""

    def __init__(self, model):
        self.model = model

    def __getattr__(self, name):
        return getattr(self.model, name)

    logit_scale, logit_bias = 1.0, 0.0


def views_of(probabilities, monkeypatch):
    """Features, prompts and a model under which each view has the given probabilities."""
    monkeypatch.setattr("tpt_lib.methods.baselines.encode_prompts", lambda *_: torch.eye(4))
    model = Said(model_of())
    return model, class_prompts(model, NAMES), torch.tensor(probabilities).clamp(min=1e-30).log()


def test_averaged_prediction_by_hand(monkeypatch):
    case = views_of([[0.6, 0.4, 0, 0], [0.1, 0.5, 0.4, 0], [0.2, 0.6, 0.1, 0.1]], monkeypatch)
    found = average_predict(*case)
    torch.testing.assert_close(found.probs, torch.tensor([0.3, 0.5, 0.5 / 3, 0.1 / 3]))
    assert (found.label, found.zero_shot.label, found.tuned, found.selected) == ("red panda", "cat", False, None)


def test_averaged_prediction_of_the_confident_by_hand(monkeypatch):
    case = views_of([[0.25, 0.25, 0.25, 0.25], [0.98, 0.02, 0, 0], [0.3, 0.3, 0.2, 0.2], [0, 0.9, 0.1, 0]], monkeypatch)
    found = average_predict(*case, fraction=0.5)
    assert found.selected.tolist() == [1, 3]
    torch.testing.assert_close(found.probs, torch.tensor([0.49, 0.46, 0.05, 0.0]))


def test_majority_vote_by_hand(monkeypatch):
    case = views_of([[0.4, 0.35, 0.25, 0], [0.4, 0.35, 0.25, 0], [0, 0.1, 0.9, 0]], monkeypatch)
    found = vote_predict(*case)  # the average would say class 2
    assert found.index == 0
    assert average_predict(*case).index == 2
    torch.testing.assert_close(found.probs, (torch.tensor([2.0, 0, 1, 0]) + torch.tensor([0.8, 0.8, 1.4, 0]) / 3) / 4)
    assert vote_predict(*case, fraction=0.4).index == 2


def test_a_tie_goes_to_the_likelier_class_then_to_the_lower_index(monkeypatch):
    model, prompts, views = views_of([[0.5, 0.3, 0.2, 0], [0.1, 0.0, 0.9, 0]], monkeypatch)
    assert vote_predict(model, prompts, views).index == 2
    mirrored = torch.tensor([[0.1, 0.2, 0.6, 0.1], [0.1, 0.6, 0.2, 0.1]]).log()
    assert vote_predict(model, prompts, mirrored).index == 1


def test_a_class_that_no_view_gives_anything_stays_finite(monkeypatch):
    model, prompts, _ = views_of([[1.0, 0, 0, 0]], monkeypatch)
    far = torch.tensor([[500.0, 0, -500, -1000], [400.0, 0, -500, -1000]])
    for method in (average_predict, vote_predict):
        found = method(model, prompts, far)
        assert found.logits.isfinite().all()
        assert found.probs[1:].max() < 1e-6


def test_prompts_by_hand():
    model, features = model_of(), unit(3, 16)
    ways = [words(), coop(0), cocoop(1)]
    want = torch.stack([zero_shot_predict(model, way, features).probs for way in ways]).mean(dim=0)
    torch.testing.assert_close(prompt_ensemble_predict(model, ways, features).probs, want)
    both = prompt_ensemble_predict(model, ways[:2], features, method=[few, zero_shot_predict])
    want = (few(model, ways[0], features).probs + zero_shot_predict(model, ways[1], features).probs) / 2
    torch.testing.assert_close(both.probs, want)
    tuned = prompt_ensemble_predict(model, ways, features, method=tpt_predict)
    torch.testing.assert_close(
        tuned.probs, torch.stack([tpt_predict(model, w, features).probs for w in ways]).mean(dim=0)
    )


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


def test_text_features_are_kept_while_the_weights_are_the_same(monkeypatch):
    model = fresh("open_clip-vit")
    prompts, features = words(model), unit(2, 16)
    calls = []
    real = tpt_lib.encode_prompts
    monkeypatch.setattr("tpt_lib.methods.baselines.encode_prompts", lambda *a: calls.append(1) or real(*a))
    templates = ["a {}.", "the {}."]
    first = template_ensemble_predict(model, prompts, features, templates=templates)
    zero = zero_shot_predict(model, prompts, features)
    assert len(calls) == 3
    assert torch.equal(template_ensemble_predict(model, prompts, features, templates=templates).logits, first.logits)
    assert torch.equal(zero_shot_predict(model, prompts, features).logits, zero.logits)
    average_predict(model, prompts, features)
    assert len(calls) == 3
    template_ensemble_predict(model, prompts, features, templates=["a {}."])
    assert len(calls) == 4
    with torch.no_grad():
        model.module.ln_final.weight.mul_(-1)
    assert not torch.equal(
        template_ensemble_predict(model, prompts, features, templates=templates).logits, first.logits
    )
    assert len(calls) == 6


def test_the_fast_path_is_proven_once_for_all_templates(monkeypatch):
    model, calls = fresh("open_clip-vit"), []
    real = tpt_lib.text.encode._general
    monkeypatch.setattr("tpt_lib.text.encode._general", lambda *a: calls.append(1) or real(*a))
    few(model, words(model), unit(2, 16))
    assert len(calls) == 1


def test_zero_shot_is_that_of_tpt():
    model, features = model_of(), unit(4, 16)
    for prompts in (words(), coop(), cocoop()):
        torch.testing.assert_close(
            zero_shot_predict(model, prompts, features).logits, tpt_predict(model, prompts, features).zero_shot.logits
        )


@hypothesis.settings(max_examples=6)
@hypothesis.given(st.integers(1, 9), st.integers(0, 10**6))
def test_laws(number, seed):
    model, features = model_of(), unit(number, 16, seed=seed)
    for prompts in (words(), cocoop()):
        zero = zero_shot_predict(model, prompts, features)
        one = features[:1]
        for method in (average_predict, vote_predict):
            assert method(model, prompts, one).index == zero.index
            torch.testing.assert_close(
                method(model, prompts, features, fraction=1.0).logits, method(model, prompts, features).logits
            )
            if prompts.meta_net is None:  # whose context is that of row 0
                mixed = features[torch.randperm(number)]
                torch.testing.assert_close(
                    method(model, prompts, mixed).logits, method(model, prompts, features).logits, atol=1e-4, rtol=1e-4
                )
        torch.testing.assert_close(average_predict(model, prompts, one).probs, zero.probs)
        torch.testing.assert_close(average_predict(model, prompts, one.expand(5, -1)).probs, zero.probs)
        torch.testing.assert_close(prompt_ensemble_predict(model, [prompts], features).probs, zero.probs)
        torch.testing.assert_close(prompt_ensemble_predict(model, [prompts] * 3, features).probs, zero.probs)


@pytest.mark.parametrize("prompts", [words, coop, cocoop])
@pytest.mark.parametrize("method", [*METHODS, prompt_ensemble_predict])
def test_several_images_give_what_one_at_a_time_gives(prompts, method):
    model, features = model_of(), unit(3, 5, 16)
    given = [prompts(), words()] if method is prompt_ensemble_predict else prompts()
    options = [{}, {"fraction": 0.4}] if method in (average_predict, vote_predict) else [{}]
    for option in options:
        together = method(model, given, features, **option)
        assert len(together) == 3
        for one, other in zip(features, together, strict=True):
            alone = method(model, given, one, **option)
            torch.testing.assert_close(alone.logits, other.logits, atol=1e-4, rtol=1e-4)
            assert (alone.selected is None) == (other.selected is None)
            assert alone.selected is None or torch.equal(alone.selected, other.selected)


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_inside_the_callers_modes(mode):
    model, features = model_of(), unit(3, 16)
    for method in METHODS:
        want = method(model, words(), features)
        with mode():
            prompts = words()
            got = method(model, prompts, features.clone())
        torch.testing.assert_close(got.logits, want.logits)
        torch.testing.assert_close(method(model, prompts, features).logits, want.logits)
        assert not got.logits.requires_grad


def test_tuning_after_a_baseline_still_tunes():
    model, prompts, features = model_of(), words(), unit(4, 16)
    zero_shot_predict(model, prompts, features)
    assert tpt_predict(model, prompts, features).tuned


def test_the_entropy_of_a_vote():
    found = vote_predict(model_of(), words(), unit(1, 16).expand(63, -1))
    assert found.probs.max() > 63 / 64
    assert found.entropy < math.log(4)


@pytest.mark.usefixtures("no_shape_checks")
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(("features", "message"), [
    (torch.ones(16), r"features must be floats of shape \(N, E\), or \(B, N, E\) .* but got torch.float32 of shape \(16,\)"),
    (torch.ones(0, 16), r"none of them empty, but got torch.float32 of shape \(0, 16\); encode_views returns"),
    (torch.ones(3, 16, dtype=torch.int64), "but got torch.int64"),
    (torch.full((3, 16), torch.nan), "features are not all finite; look at the image"),
    (torch.ones(3, 8), "image features have width 8 and text features 16"),
])  # fmt: skip
def test_bad_features(method, features, message):
    with pytest.raises(ValueError, match=message):
        method(model_of(), words(), features)


@pytest.mark.usefixtures("no_shape_checks")
def test_bad_options():
    model, features = model_of(), unit(3, 16)
    with pytest.raises(ValueError, match="fraction must be above 0 and at most 1, but got 0"):
        average_predict(model, words(), features, fraction=0)
    with pytest.raises(ValueError, match=r"templates must be a list of one or more texts, but got 'a \{\}'"):
        template_ensemble_predict(model, words(), features, templates="a {}")
    with pytest.raises(ValueError, match=r"one or more texts, but got \[\]"):
        template_ensemble_predict(model, words(), features, templates=[])
    with pytest.raises(TypeError, match="prompts must be a list of what class_prompts returned"):
        prompt_ensemble_predict(model, words(), features)
    with pytest.raises(ValueError, match="there are 2 prompts and 1 methods"):
        prompt_ensemble_predict(model, [words(), coop()], features, method=[tpt_predict])
    with pytest.raises(
        ValueError, match=r"the same classes in the same order, but one has \['dog', 'cat'\] and another"
    ):
        prompt_ensemble_predict(model, [words(), words(names=["dog", "cat"])], features)
    with pytest.raises(ValueError, match="these prompts were made for another model"):
        zero_shot_predict(fresh("open_clip-vit"), words(), features)
