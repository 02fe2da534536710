"""From an image to a prediction."""

import gc
import json
import resource

import pytest
import torch
import torch.nn.functional as F
from support.cases import meta_net, model_of
from support.zoo import fresh

import tpt_lib
from tpt_lib import class_prompts, tpt_classify, tpt_predict

NAMES = ["cat", "red panda", "dog"]


def image(seed=0, size=(40, 60)):
    return torch.randint(256, (3, *size), dtype=torch.uint8, generator=torch.Generator().manual_seed(seed))


def same(one, other):
    assert one.label == other.label
    torch.testing.assert_close(one.logits, other.logits, atol=2e-3, rtol=1e-4)
    torch.testing.assert_close(one.zero_shot.logits, other.zero_shot.logits, atol=1e-4, rtol=1e-4)
    assert torch.equal(one.selected, other.selected)


def test_the_whole_is_its_parts():
    model = model_of()
    result = tpt_classify(model, image(), NAMES)
    prompts = class_prompts(model, NAMES)
    views = tpt_lib.augment_views(image(), model.image_spec, n_views=64, recipe="crop", seed=0)
    features = tpt_lib.encode_views(model, views)
    tuned = tpt_lib.tune_prompt(model, prompts, features)
    torch.testing.assert_close(result.logits, tpt_lib.class_logits(model, features[:1], tuned.text_features)[0])
    plain = tpt_lib.class_logits(model, features[:1], tpt_lib.encode_prompts(model, prompts))[0]
    torch.testing.assert_close(result.zero_shot.logits, plain)
    assert torch.equal(result.selected, tuned.selected)
    torch.testing.assert_close(result.context, tuned.context)
    assert (result.loss_before, result.loss_after) == tuple(tuned.losses.tolist())
    assert result.tuned
    assert not result.zero_shot.tuned
    same(result, tpt_predict(model, prompts, features))


def test_zero_shot_is_steps_0_and_lr_0():
    model = model_of()
    for result in (
        tpt_classify(model, image(), NAMES, n_views=8, steps=0),
        tpt_classify(model, image(), NAMES, n_views=8, lr=0.0),
    ):
        torch.testing.assert_close(result.logits, result.zero_shot.logits)
    assert not tpt_classify(model, image(), NAMES, n_views=8, steps=0).tuned


@pytest.mark.parametrize("batch", [1, 2, 5])
def test_many_images_give_what_one_at_a_time_gives(batch):
    model, prompts = model_of(), class_prompts(model_of(), NAMES)
    images = [image(i, (40, 40)) for i in range(5)]
    alone = [tpt_classify(model, one, prompts, n_views=16) for one in images]
    for many in (images, torch.stack(images), tuple(images[::-1])):
        results = tpt_classify(model, many, prompts, n_views=16, batch_size=batch)
        results = results[::-1] if isinstance(many, tuple) else results
        assert len(results) == 5
        for one, other in zip(alone, results, strict=True):
            same(one, other)


@pytest.mark.parametrize("batch_size", [None, 2])
@pytest.mark.parametrize("labelled", [True, False])
def test_a_loader_of_views(batch_size, labelled):
    model, prompts = model_of(), class_prompts(model_of(), NAMES)
    images = [image(i) for i in range(3)]
    views = [tpt_lib.augment_views(one, model.image_spec, n_views=12) for one in images]
    items = [(v, i) for i, v in enumerate(views)] if labelled else views
    results = tpt_classify(model, torch.utils.data.DataLoader(items, batch_size=batch_size), prompts)
    for one, other in zip(images, results, strict=True):
        same(tpt_classify(model, one, prompts, n_views=12), other)


@pytest.mark.parametrize("recipe", ["crop", "augmix"])
def test_seed_and_recipe(recipe):
    model = model_of()
    first, again, other = (tpt_classify(model, image(), NAMES, n_views=16, recipe=recipe, seed=s) for s in (1, 1, 2))
    assert torch.equal(first.logits, again.logits)
    assert not torch.equal(first.logits, other.logits)


def test_prompts_of_every_kind(tmp_path):
    model = model_of()
    net = meta_net()
    state = {"ctx": torch.randn(4, 32), "meta_net.linear1.weight": net.weight1, "meta_net.linear1.bias": net.bias1,
             "meta_net.linear2.weight": net.weight2, "meta_net.linear2.bias": net.bias2}  # fmt: skip
    torch.save(state, tmp_path / "cocoop.pth")
    for context in (
        None,
        "a drawing of the",
        torch.randn(16, 32),
        torch.randn(3, 4, 32),
        tpt_lib.load_prompt(tmp_path / "cocoop.pth"),
    ):
        prompts = class_prompts(model, NAMES, context=context)
        result = tpt_classify(model, image(), prompts, n_views=16)
        assert result.tuned
        assert result.probs.isfinite().all()


def test_cocoops_own_prediction_is_the_zero_shot_one():
    model = model_of()
    learned = tpt_lib.prompts.LearnedPrompt(torch.randn(4, 32), meta_net())
    prompts = class_prompts(model, NAMES, context=learned)
    features = F.normalize(torch.randn(12, 16), dim=-1)
    text = tpt_lib.encode_prompts(model, prompts, tpt_lib.prompts.conditional_context(prompts, features[0]))
    want = tpt_lib.class_logits(model, features[:1], text)[0]
    torch.testing.assert_close(tpt_predict(model, prompts, features).zero_shot.logits, want)


def test_duplicating_a_class_splits_its_probability():
    model = model_of()
    features = F.normalize(torch.randn(12, 16), dim=-1)
    once = tpt_predict(model, class_prompts(model, NAMES), features, steps=0)
    twice = tpt_predict(model, class_prompts(model, [*NAMES, "cat"]), features, steps=0)
    torch.testing.assert_close(twice.probs[0], twice.probs[3])
    merged = twice.logits[:3].exp() + torch.tensor([twice.logits[3].exp(), 0, 0])
    torch.testing.assert_close(merged / merged.sum(), twice.probs[:3] + torch.tensor([twice.probs[3], 0, 0]))
    torch.testing.assert_close(once.logits, twice.logits[:3])


@pytest.mark.parametrize(
    "mode", [torch.no_grad, torch.inference_mode, lambda: torch.autocast("cpu", dtype=torch.bfloat16)]
)
def test_inside_the_callers_modes(mode):
    model = model_of()
    want = tpt_classify(model, image(), NAMES, n_views=16)
    with mode():
        got = tpt_classify(model, image(), NAMES, n_views=16)
    assert got.logits.dtype == torch.float32
    torch.testing.assert_close(
        got.probs, want.probs, atol=0.2 if mode not in (torch.no_grad, torch.inference_mode) else 1e-4, rtol=0
    )


@pytest.mark.parametrize(
    "change", [lambda m: m.half(), lambda m: m.bfloat16(), lambda m: torch.compile(m, backend="eager")]
)
def test_half_precision_and_compiled_models(change):
    module = fresh("open_clip-vit").module
    result = tpt_classify(tpt_lib.wrap(change(module)), image(), NAMES, n_views=16)
    assert result.tuned
    assert result.context.dtype == torch.float32


def test_a_prediction_shows_itself():
    model = model_of()
    result = tpt_classify(model, image(), ["cat", "<dog> & co", "red panda"], n_views=16)
    assert repr(result).startswith(f"<Prediction {result.label!r} ")
    assert f"before tuning {result.zero_shot.label!r}" in repr(result)
    assert len(result.top(5)) == 3
    assert result.top(1) == [(result.label, pytest.approx(result.probs.max().item()))]
    assert result.index == result.names.index(result.label)
    assert result.entropy == pytest.approx(-(result.probs * result.probs.log()).sum().item(), abs=1e-5)
    drawn = result._repr_html_()
    assert "&lt;dog&gt; &amp; co" in drawn
    assert drawn.count("<tr>") == 3
    assert drawn.count("background:") == 6
    assert result.zero_shot._repr_html_().count("background:") == 3
    kept = json.loads(json.dumps(result.to_dict()))
    assert kept["label"] == result.label
    assert kept["zero_shot"]["probs"] == pytest.approx(result.zero_shot.probs.tolist())


def test_what_is_not_finite():
    model = model_of()
    prompts = class_prompts(model, NAMES)
    features = F.normalize(torch.randn(12, 16), dim=-1)
    with pytest.warns(UserWarning, match="not finite for 1 of 1 images"):
        result = tpt_predict(model, prompts, features, objective=lambda logits: logits.sum() * torch.nan)
    assert not result.tuned
    assert "not tuned" in repr(result)
    torch.testing.assert_close(result.probs, result.zero_shot.probs)
    json.loads(json.dumps(result.to_dict(), allow_nan=False))
    broken = fresh("open_clip-vit")
    with torch.no_grad():
        broken.module.text_projection[0, 0] = torch.nan
    with (
        pytest.raises(ValueError, match="3 of 3 logits are not finite; look for NaN or infinite weights"),
        pytest.warns(UserWarning, match="not finite"),
    ):
        tpt_predict(broken, class_prompts(broken, NAMES), features)
    with torch.no_grad():
        broken.module.visual.proj.fill_(torch.nan)
    with pytest.raises(ValueError, match="image_features are not all finite"):
        tpt_classify(broken, image(), NAMES, n_views=4)


def test_bad_input(no_shape_checks):
    with pytest.raises(ValueError, match="batch must be at least 1, but got 0"):
        tpt_classify(model_of(), image(), NAMES, batch_size=0)
    with pytest.raises(ValueError, match="these prompts were made for another model"):
        tpt_classify(model_of(), image(), class_prompts(fresh("open_clip-vit"), NAMES), n_views=4)


def test_no_memory_grows_from_image_to_image():
    model, prompts = model_of(), class_prompts(model_of(), NAMES)

    def run(number):
        for i in range(number):
            tpt_predict(
                model, prompts, F.normalize(torch.randn(8, 16, generator=torch.Generator().manual_seed(i)), dim=-1)
            )
        gc.collect()
        return sum(
            1 for thing in gc.get_objects() if type(thing) in (torch.Tensor, torch.nn.Parameter)
        ), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

    run(50)
    tensors, peak = run(50)
    more, later = run(500)
    assert more <= tensors + 5
    assert later - peak < 20_000, "kilobytes"
