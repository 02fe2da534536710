"""Bongard problems against the plain loop of ``oracles/tpt.py``, together and one at a time, from every kind of input."""

import functools
import inspect
import json
import math

import pytest
import torch
from oracles.tpt import float64, plain_bongard
from support.cases import model_of, problem_of
from support.marking import slow_but
from support.zoo import fresh

import tpt_lib
from tpt_lib import BongardPrediction, bongard_prototype, bongard_tpt, bongard_tpt_many, gaussian_context

STEPS = 64
CLIP_START, CLIP_END, STOP = 49406, 49407, 269


def plain(model, problem, steps, n_context=4):
    """Ids by hand: [start, context, class token, ".", end]."""
    positives, negatives, queries = problem
    module = float64(model.module)
    ids = torch.zeros(2, model.tokenize([""]).shape[1], dtype=torch.long)
    row = [CLIP_START, *[343] * (n_context + 1), STOP, CLIP_END]
    ids[:, : len(row)] = torch.tensor(row)
    columns = [torch.arange(1, 1 + n_context).expand(2, -1), torch.full((2, 1), 1 + n_context)]
    start = gaussian_context(model, n_context + 2)
    tokens = [start[:n_context], start[n_context:, None]]
    labels = [0] * len(positives) + [1] * len(negatives)
    supports = torch.cat([positives, negatives])
    scale, bias = float(model.logit_scale), float(model.logit_bias)
    tokens, features, gradients, losses = plain_bongard(
        module, ids, columns, tokens, supports, labels, scale, bias, steps
    )
    return tokens, scale * queries.double() @ features.T + bias, gradients, torch.stack(losses)


@functools.cache
def solved(name, seed, steps, **sizes):
    model = model_of(name)
    problem = problem_of(seed, **sizes)
    settings = {} if steps == STEPS else {"steps": steps}
    return bongard_tpt(model, *problem, **settings), plain(model, problem, steps)


CASES = [("open_clip-vit", 1), ("open_clip-vit", 2), ("open_clip-resnet", 3), ("transformers-clip", 4)]


@pytest.mark.parametrize(("name", "seed"), CASES)
def test_one_step_is_the_plain_step(name, seed):
    got, (tokens, logits, gradients, losses) = solved(name, seed, 1)
    for found, want, gradient in zip((got.context, got.name_tokens), tokens, gradients[0], strict=True):
        clear = gradient.abs() > 1e-3 * gradient.square().mean().sqrt()
        assert clear.float().mean() > 0.9
        assert (found - want)[clear].abs().max() < 1e-5
    assert (got.logits - logits).abs().max() < 1e-3
    assert (got.losses[:1] - losses).abs().max() < 1e-4
    assert got.tuned


def test_sides_of_different_sizes():
    got, (_, logits, _, losses) = solved("open_clip-vit", 5, 2, positives=3, negatives=5)
    assert (got.logits - logits).abs().max() < 1e-3
    assert (got.losses[:-1] - losses).abs().max() < 1e-4
    assert (got.positives, len(got.support_logits)) == (3, 8)


@pytest.mark.parametrize(("name", "seed"), slow_but([("open_clip-vit", 1)], CASES))
def test_all_steps_are_the_plain_loop(name, seed):
    got, (_, logits, _, losses) = solved(name, seed, STEPS)
    sides = ["positive" if positive else "negative" for positive in (logits[:, 0] >= logits[:, 1]).tolist()]
    assert list(got.verdicts) == sides
    assert (got.logits - logits).abs().max() < 1e-3
    assert (got.losses[:-1] - losses).abs().max() < 1e-4
    assert got.losses.shape == (STEPS + 1,)
    assert got.losses[-1] < 0.05 * got.losses[0]


def test_learned_sides_are_found():
    results = bongard_tpt_many(model_of(), [problem_of(seed) for seed in range(10)], steps=32)
    verdicts = [result.verdicts for result in results]
    right = sum(v == want for vs in verdicts for v, want in zip(vs, ["positive", "negative"] * 2, strict=True))
    assert right >= 34  # of 40
    assert all(result.support_accuracy == 1 for result in results)


def test_together_is_one_at_a_time():
    """Also where the numbers of images differ from problem to problem."""
    model = model_of()
    problems = [
        problem_of(1),
        problem_of(2),
        problem_of(3, 3, 5, 1),
        problem_of(4, 3, 5, 2),
        problem_of(5, 3, 6, 2),
        problem_of(6, 4, 6, 2),
        problem_of(7),
        problem_of(8),
    ]
    together = bongard_tpt_many(model, problems, steps=6, batch_size=3)
    for result, problem in zip(together, problems, strict=True):
        alone = bongard_tpt(model, *problem, steps=6)
        assert result.verdicts == alone.verdicts
        assert len(result.verdicts) == len(problem[2])
        assert (result.logits - alone.logits).abs().max() < 1e-3
        assert (result.losses - alone.losses).abs().max() < 1e-3
    (last,) = bongard_tpt_many(model, problems[-1:], steps=6, batch_size=1)
    assert last.verdicts == together[-1].verdicts


def test_many_have_the_settings_of_one():
    one, many = (inspect.signature(solve).parameters.values() for solve in (bongard_tpt, bongard_tpt_many))
    settings = {each.name: each.default for each in one if each.kind is each.KEYWORD_ONLY}
    assert {each.name: each.default for each in many if each.kind is each.KEYWORD_ONLY} == {**settings, "batch_size": 8}


def test_the_initial_tokens_are_drawn_as_told():
    result = bongard_tpt(model_of(), *problem_of(1), steps=0, n_context=2, sigma=0.5, seed=3)
    drawn = gaussian_context(model_of(), 4, sigma=0.5, seed=3)
    assert torch.equal(result.context, drawn[:2])
    assert torch.equal(result.name_tokens, drawn[2:, None])
    assert not result.tuned


def test_a_prediction_by_hand():
    logits = torch.tensor([[math.log(3), 0.0], [0.0, math.log(4)], [1.0, 1.0]])
    supports = torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.0, 2.0], [0.0, 1.0]])
    result = BongardPrediction(logits, supports, 2, torch.tensor([0.5, 0.25]), True)
    torch.testing.assert_close(result.probs, torch.tensor([0.75, 0.2, 0.5]))
    assert result.verdicts == ("positive", "negative", "positive")
    assert result.support_accuracy == 0.75
    assert repr(result) == "<BongardPrediction positive 0.75, negative 0.80, positive 0.50; supports 75% right>"
    assert json.loads(json.dumps(result.to_dict())) == {
        "verdicts": ["positive", "negative", "positive"],
        "probs": pytest.approx([0.75, 0.2, 0.5]),
        "logits": [pytest.approx(row) for row in logits.tolist()],
        "support_accuracy": 0.75,
        "losses": [0.5, 0.25],
        "tuned": True,
    }


def test_the_sides_have_names_not_numbers():
    positives, negatives, queries = problem_of(7, noise=0.4)
    result = bongard_tpt(model_of(), positives, negatives, queries, steps=16)
    swapped = bongard_tpt(model_of(), negatives, positives, queries, steps=16)
    assert result.verdicts == ("positive", "negative") * 2
    assert swapped.verdicts == ("negative", "positive") * 2
    assert ((result.probs > 0.5) == torch.tensor([True, False] * 2)).all()
    assert result.to_dict()["verdicts"] == ["positive", "negative"] * 2
    assert "positive" in repr(result)
    assert "100%" in repr(result)


@pytest.mark.parametrize("fixed", [{"words": ("True", "False")}, {"context": "the picture of one"}])
def test_what_is_fixed_stays(fixed):
    model = model_of()
    result = bongard_tpt(model, *problem_of(8), steps=16, **fixed)
    assert result.losses[-1] < result.losses[0]
    if "words" in fixed:
        assert result.name_tokens is None
        prompts = tpt_lib.class_prompts(model, ["True", "False"], template="{}.", context=result.context)
    else:
        assert result.context.shape[0] == 0
        prompts = tpt_lib.class_prompts(
            model, ["x", "y"], template="the picture of one {}.", name_tokens=result.name_tokens
        )
    text = tpt_lib.encode_prompts(model, prompts)
    assert torch.allclose(tpt_lib.class_logits(model, problem_of(8)[2], text), result.logits, atol=1e-4)


def test_fixed_words_and_context_are_zero_shot():
    model = model_of()
    fixed = {"words": ("True", "False"), "context": "a photo of a"}
    result = bongard_tpt(model, *problem_of(8), steps=0, **fixed)
    text = tpt_lib.encode_prompts(model, tpt_lib.class_prompts(model, ["True", "False"]))
    assert torch.allclose(tpt_lib.class_logits(model, problem_of(8)[2], text), result.logits, atol=1e-4)
    assert not result.tuned
    with pytest.raises(ValueError, match="nothing to tune; leave one out, or pass steps=0"):
        bongard_tpt(model, *problem_of(8), **fixed)


def test_prototypes_by_hand():
    model = model_of()
    e = torch.eye(16)
    problem = torch.stack([e[0], e[1]]), e[2:3], torch.stack([e[0], e[2]])
    result = bongard_prototype(model, *problem)
    scale = float(model.logit_scale)
    assert torch.allclose(result.logits, scale * torch.tensor([[math.sqrt(0.5), 0.0], [0.0, 1.0]]), atol=1e-4)
    assert result.verdicts == ("positive", "negative")
    assert (result.support_accuracy, result.tuned, len(result.losses)) == (1.0, False, 0)
    assert all(kept is given for kept, given in zip(result.images, problem, strict=True))


def test_images_of_every_kind_are_encoded_once(photo, tmp_path):
    model = fresh("open_clip-vit")
    photo.save(tmp_path / "a.png")
    calls = []
    handle = model.module.visual.register_forward_hook(lambda _m, inputs, _o: calls.append(len(inputs[0])))
    tensors = torch.rand(3, 3, 40, 60)
    problem = ([photo, str(tmp_path / "a.png")], tensors, tensors[0])
    result = bongard_tpt(model, *problem, steps=4)
    handle.remove()
    assert sum(calls) == 6
    features = [tpt_lib.encode_images(model, images) for images in problem]
    assert [len(f) for f in features] == [2, 3, 1]
    assert torch.equal(features[0][0], features[0][1])
    assert torch.allclose(bongard_tpt(model, *features, steps=4).logits, result.logits, atol=1e-4)


def test_the_picture_has_every_image_and_verdict(photo):
    model = fresh("open_clip-vit")
    images = list(torch.rand(4, 3, 40, 60))
    result = bongard_tpt(model, [photo, images[0]], images[1:3], [images[3]], steps=1)
    figure = tpt_lib.plots.plot_bongard(result)
    titles = [axes.get_title() for axes in figure.axes]
    assert titles == ["positive"] * 2 + ["negative"] * 2 + [f"query: {result.verdicts[0]}, {titles[-1][-4:]}"]
    assert (figure.axes[0].images[0].get_array() == photo).all()
    features = bongard_tpt(model, *problem_of(1), steps=1)
    with pytest.raises(ValueError, match="given as features; pass images to bongard_tpt"):
        tpt_lib.plots.plot_bongard(features)


def test_a_loss_that_is_not_finite_leaves_the_tokens():
    model = model_of()
    with pytest.warns(UserWarning, match="a loss or gradient was not finite in 1 of 1 cases; those are left unchanged"):
        result = bongard_tpt(model, *problem_of(1), steps=2, lr=1e37)
    assert not result.tuned
    assert "not tuned" in repr(result)
    start = gaussian_context(model, 6)
    assert torch.equal(result.context, start[:4])
    assert torch.equal(result.name_tokens, start[4:, None])
    untuned = bongard_tpt(model, *problem_of(1), steps=0)
    torch.testing.assert_close(result.logits, untuned.logits, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"positives": torch.empty(0, 16)}, "positives is empty"),
        ({"negatives": []}, "negatives is empty"),
        ({"queries": []}, "queries is empty"),
        ({"queries": torch.rand(2, 5)}, "must come from one model, but have widths .5, 16."),
        ({"positives": torch.full((2, 16), torch.nan)}, "finite"),
        ({"words": ("yes",)}, "words must be two"),
        ({"words": "no"}, "words must be two"),
        ({"n_context": -1}, "n_context must be 0 or more"),
    ],
)
def test_bad_input(change, message, no_shape_checks):
    positives, negatives, queries = problem_of(1)
    arguments = {"positives": positives, "negatives": negatives, "queries": queries, "steps": 1} | change
    with pytest.raises(ValueError, match=message):
        bongard_tpt(model_of(), **arguments)


def test_logits_that_are_not_finite_are_an_error():
    model = fresh("open_clip-vit")
    with torch.no_grad():
        model.module.logit_scale.fill_(100.0)
    with pytest.raises(ValueError, match="logits are not finite"), pytest.warns(UserWarning, match="not finite"):
        bongard_tpt(model, *problem_of(1), steps=1)


def test_bad_problems(no_shape_checks):
    with pytest.raises(ValueError, match=r"a tuple .positives, negatives, queries., but got 2 parts"):
        bongard_tpt_many(model_of(), [problem_of(1)[:2]])
    with pytest.raises(ValueError, match="batch_size must be at least 1"):
        bongard_tpt_many(model_of(), [], batch_size=0)
    assert bongard_tpt_many(model_of(), []) == []


def test_no_context_at_all():
    result = bongard_tpt(model_of(), *problem_of(1), n_context=0, steps=16)
    assert result.context.shape == (0, 32)
    prompts = tpt_lib.class_prompts(model_of(), ["x", "y"], template="{}.", name_tokens=result.name_tokens)
    text = tpt_lib.encode_prompts(model_of(), prompts)
    torch.testing.assert_close(
        result.logits, tpt_lib.class_logits(model_of(), problem_of(1)[2], text), atol=1e-3, rtol=0
    )
    assert result.losses[-1] < 0.5 * result.losses[0]
