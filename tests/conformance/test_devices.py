"""Every kind of model and every method on an accelerator: the results are the CPU's, in every precision.

The device is simulated and computes on the CPU. What differs is the order of sums, where CPU kernels are fused or the text
engine lays its tokens out for the device.
"""

import dataclasses
import functools
import math

import pytest
import torch
from support.cases import problem_of
from support.marking import slow_but
from support.prompting import NAMES, cocoop, coop, words
from support.simulated import DEVICE, counting, on_host, to_simulated
from support.zoo import EACH_FEW_QUICK, fresh
from torch import nn

import tpt_lib
from tpt_lib import class_prompts, encode_prompts, encode_views, get_method, list_methods

pytestmark = pytest.mark.usefixtures("simulated")
TEXTS = ["a photo of a cat.", "a photo of a red panda.", "kite"]
TEMPLATES = {"template_ensemble": {"templates": ["a photo of a {}.", "the {}."]}}


@functools.cache
def both(name="open_clip-vit", scale=30):
    """Return a model of the zoo on the CPU, and the same model on the device."""
    model = fresh(name)
    with torch.no_grad():
        model.module.logit_scale.fill_(math.log(scale))
    return model, moved(model)


def moved(model, dtype=None):
    return dataclasses.replace(model, module=to_simulated(model.module).to(dtype))


def noise(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def close(found, want, atol=1e-5):
    torch.testing.assert_close(on_host(found), want, atol=atol, rtol=1e-4)


@pytest.mark.parametrize("name", EACH_FEW_QUICK)
def test_a_model_gives_the_features_of_the_cpu(name):
    def features(model):
        ids = model.tokenize(TEXTS)
        embeddings = model.embed_tokens(ids).requires_grad_()
        text = model.encode_embeddings(embeddings, ids)
        (gradient,) = torch.autograd.grad(text.square().sum(), embeddings)
        views = noise(3, 3, *model.image_spec.size).to(text.device)
        own = encode_prompts(model, class_prompts(model, NAMES))
        return text.detach(), gradient, encode_views(model, views), own.detach()

    def state(model):
        tensors = model.module.state_dict(keep_vars=True).items()
        return {key: (id(x), x._version, x.requires_grad, x.grad, x.dtype) for key, x in tensors}, on_host(
            dict(tensors)
        )

    cpu, device = both(name)
    marks, weights = state(device)
    for found, want in zip(features(device), features(cpu), strict=True):
        assert str(found.device) == DEVICE
        assert (on_host(found) - want).norm() <= 1e-5 * want.norm()
    assert state(device)[0] == marks
    assert all(torch.equal(now, weights[key]) for key, now in state(device)[1].items())


@pytest.mark.parametrize("name", EACH_FEW_QUICK)
@pytest.mark.slow
def test_a_prompt_is_tuned_as_on_the_cpu(name):
    cpu, device = both(name)
    views = encode_views(cpu, noise(2, 12, 3, *cpu.image_spec.size))
    want = tpt_lib.tune_prompt(cpu, words(cpu), views, lr=1e-3)
    found = tpt_lib.tune_prompt(device, words(device), views.to(DEVICE), lr=1e-3)
    close(found.losses, want.losses, atol=1e-3)
    close(found.text_features, want.text_features, atol=1e-3)
    assert torch.equal(on_host(found.selected), want.selected)
    assert on_host(found.applied).all()


def predict(name, model, prompts, views):
    entry = get_method(name)
    views = views.to(prompts.context.device)
    given = views if "views" in entry.needs else encode_views(model, views)
    more = {"reward": noise(len(views), len(NAMES)).to(views.device)} if "reward" in entry.needs else {}
    return entry.predict(model, prompts, given, **more, **TEMPLATES.get(name, {}))


@pytest.mark.parametrize("name", list_methods())
@pytest.mark.parametrize("kind", slow_but([words], [words, coop, cocoop]))
def test_a_method_predicts_what_it_does_on_the_cpu(name, kind):
    cpu, device = both()
    views = noise(8, 3, 32, 32)
    want, found = (predict(name, model, kind(model), views) for model in (cpu, device))
    for one, other in ((found, want), (found.zero_shot, want.zero_shot)):
        assert str(one.logits.device) == DEVICE
        close(one.logits, other.logits, atol=2e-3)
    assert found.label == want.label
    assert (found.selected is None) == (want.selected is None)
    assert found.selected is None or on_host(found.selected).tolist() == want.selected.tolist()
    assert repr(found).startswith("<Prediction")
    assert found.to_dict()["label"] == want.label


def test_a_batch_on_the_device_is_one_at_a_time():
    _, device = both()
    views = encode_views(device, noise(3, 5, 3, 32, 32).to(DEVICE))
    prompts = words(device)
    together = tpt_lib.tpt_predict(device, prompts, views)
    for one, other in zip(views, together, strict=True):
        close(other.logits, on_host(tpt_lib.tpt_predict(device, prompts, one).logits), atol=2e-3)


def test_bongard_problems():
    cpu, device = both(scale=100)
    problem = problem_of(0)
    want = tpt_lib.bongard_tpt(cpu, *problem, steps=4)
    found = tpt_lib.bongard_tpt(device, *(side.to(DEVICE) for side in problem), steps=4)
    assert found.verdicts == want.verdicts
    close(found.losses, want.losses, atol=1e-3)


def test_from_images_to_a_report(tmp_path):
    _, device = both()
    images = list(torch.randint(256, (3, 3, 40, 60), dtype=torch.uint8))
    assert len(tpt_lib.tpt_classify(device, images, NAMES, n_views=4).labels) == 3
    assert tpt_lib.classify(device, images[0], NAMES, method="view_vote", n_views=4, recipe="augmix").label in NAMES
    data = tpt_lib.EvalSet("noise", [(image, 0) for image in images], NAMES)
    options = {"n_views": 4, "batch_size": 2, "num_workers": 0, "progress": False}
    report = tpt_lib.evaluate(device, data, ["zero_shot", "tpt"], out=tmp_path / "run.jsonl", **options)
    assert [row["n"] for row in report.rows()] == [3, 3]


def test_a_model_and_views_of_different_devices_are_refused():
    _, device = both()
    with pytest.raises(
        ValueError, match=r"the model is on sim:0 and the views are on cpu; move the views with views.to\('sim:0'\)"
    ):
        encode_views(device, noise(2, 3, 32, 32))


def halve_image_tower(model, dtype):
    """Cast it with its projection, which is a part of its own in transformers."""
    for tower in (model.image_tower(model.module), getattr(model.module, "visual_projection", nn.Module())):
        tower._apply(lambda tensor: tensor.to(dtype) if tensor.is_floating_point() else tensor)


HALF = slow_but([(torch.float16, 0.01)], [(torch.float16, 0.01), (torch.bfloat16, 0.05)])


@pytest.mark.parametrize(("dtype", "tolerance"), HALF)
@pytest.mark.parametrize(("name", "how"), [
    *((name, how) for name in ("open_clip-vit", "open_clip-resnet", "transformers-clip", "transformers-siglip")
      for how in ("weights", "autocast")),
    ("openai", "autocast"),  # its code runs both towers in the dtype of the image tower's weights
])  # fmt: skip
def test_an_image_tower_in_half_precision(name, dtype, tolerance, how):
    """The features come back in float32, near those of float32, and the prompt is tuned in float32."""
    cpu, device = both(name)
    views = noise(6, 3, *cpu.image_spec.size)
    want = encode_views(cpu, views)
    if how == "weights":
        device = moved(cpu)
        halve_image_tower(device, dtype)
    with torch.autocast("sim", dtype, enabled=how == "autocast"), counting() as counts:
        features = encode_views(device, views.to(DEVICE))
    assert features.dtype == torch.float32
    assert 1e-5 < (on_host(features) - want).norm() / want.norm() <= tolerance
    assert counts.synchronizations == 0
    tuned = tpt_lib.tune_prompt(device, words(device), features, lr=1e-3)
    of_the_same = tpt_lib.tune_prompt(cpu, words(cpu), on_host(features), lr=1e-3)
    assert tuned.context.dtype == tuned.text_features.dtype == torch.float32
    close(tuned.losses, of_the_same.losses, atol=1e-3)


@pytest.mark.parametrize(("dtype", "tolerance"), HALF)
@pytest.mark.parametrize("how", ["weights", "autocast"])
def test_both_towers_in_half_precision(dtype, tolerance, how):
    cpu, device = both()
    if how == "weights":
        device = moved(cpu, dtype)
    views = noise(6, 3, 32, 32)
    want = tpt_lib.tpt_predict(cpu, words(cpu), encode_views(cpu, views), lr=1e-3)
    with torch.autocast("sim", dtype, enabled=how == "autocast"):
        found = tpt_lib.tpt_predict(device, words(device), encode_views(device, views.to(DEVICE)), lr=1e-3)
    assert found.logits.dtype == found.context.dtype == torch.float32
    assert bool(found.tuned)
    assert 1e-5 < (on_host(found.probs) - want.probs).abs().max() <= tolerance
