"""From an image to a prediction."""

import gc
import json

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
    assert result.zero_shot.tuned is None
    same(result, tpt_predict(model, prompts, features))


def test_zero_shot_is_steps_0_and_lr_0():
    model = model_of()
    for result in (
        tpt_classify(model, image(), NAMES, n_views=8, steps=0),
        tpt_classify(model, image(), NAMES, n_views=8, lr=0.0),
    ):
        torch.testing.assert_close(result.logits, result.zero_shot.logits)
    assert not tpt_classify(model, image(), NAMES, n_views=8, steps=0).tuned


def test_losses_are_those_before_the_first_and_after_the_last_step():
    model, prompts = model_of(), class_prompts(model_of(), NAMES)
    features = F.normalize(torch.randn(12, 16), dim=-1)
    found = tpt_predict(model, prompts, features, steps=3)
    losses = tpt_lib.tune_prompt(model, prompts, features, steps=3).losses
    assert len(losses.unique()) == 4
    assert (found.loss_before, found.loss_after) == (losses[0], losses[3])


@pytest.mark.parametrize("batch_size", [1, 2, 5])
def test_many_images_give_what_one_at_a_time_gives(batch_size):
    model, prompts = model_of(), class_prompts(model_of(), NAMES)
    images = [image(i, (40, 40)) for i in range(5)]
    alone = [tpt_classify(model, one, prompts, n_views=16) for one in images]
    for many, want in ((images, alone), (torch.stack(images), alone), (tuple(images[::-1]), alone[::-1])):
        results = tpt_classify(model, many, prompts, n_views=16, batch_size=batch_size)
        assert results.labels == [one.label for one in want]
        for one, other in zip(want, results, strict=True):
            same(one, other)


@pytest.mark.parametrize("labeled", [True, False])
def test_a_loader_of_views_as_the_error_recommends(labeled):
    model, prompts = model_of(), class_prompts(model_of(), NAMES)
    images = [image(i) for i in range(3)]
    made = tpt_lib.views.ViewsDataset([(one, 0) for one in images] if labeled else images, model.image_spec, n_views=12)
    loader = torch.utils.data.DataLoader(made, batch_size=2)
    with pytest.raises(TypeError, match=r"for a loader of views, call tpt_predict\(model, prompts, encode_views\("):
        tpt_classify(model, loader, prompts)
    results = []
    for batch in loader:
        views = batch[0] if labeled else batch
        results += tpt_predict(model, prompts, tpt_lib.encode_views(model, views))
    for one, other in zip(images, results, strict=True):
        same(tpt_classify(model, one, prompts, n_views=12), other)


@pytest.mark.parametrize("recipe", ["crop", "augmix"])
def test_seed_and_recipe(recipe):
    model = model_of()
    first, again, other = (tpt_classify(model, image(), NAMES, n_views=16, recipe=recipe, seed=s) for s in (1, 1, 2))
    assert torch.equal(first.logits, again.logits)
    assert not torch.equal(first.logits, other.logits)


def test_prompts_of_every_kind(tmp_path):
    """The first step of AdamW goes by the learning rate against the sign of the gradient, whatever it starts from."""
    model = model_of()
    net = meta_net()
    state = {"ctx": torch.randn(4, 32), "meta_net.linear1.weight": net.weight1, "meta_net.linear1.bias": net.bias1,
             "meta_net.linear2.weight": net.weight2, "meta_net.linear2.bias": net.bias2}  # fmt: skip
    torch.save(state, tmp_path / "cocoop.pth")
    features = F.normalize(torch.randn(16, 16), dim=-1)
    for context in (
        None,
        "a drawing of the",
        0.1 * torch.randn(16, 32),
        0.1 * torch.randn(3, 4, 32),
        tpt_lib.load_prompt(tmp_path / "cocoop.pth"),
    ):
        prompts = class_prompts(model, NAMES, context=context)
        result = tpt_predict(model, prompts, features, select=lambda logits: torch.arange(len(logits)))
        start = tpt_lib.prompts.conditional_context(prompts, features[0])
        assert result.context.shape == start.shape
        free = start.clone().requires_grad_()
        logits = tpt_lib.class_logits(model, features, tpt_lib.encode_prompts(model, prompts, free))
        (gradient,) = torch.autograd.grad(tpt_lib.marginal_entropy(logits), free)
        clear = gradient.abs() > 1e-3 * gradient.square().mean().sqrt()
        assert clear.float().mean() > 0.9
        want = (1 - 5e-3 * 0.01) * start - 5e-3 * gradient.sign()
        assert (result.context - want)[clear].abs().max() < 2e-5
        at_end = tpt_lib.encode_prompts(model, prompts, result.context)
        torch.testing.assert_close(result.logits, tpt_lib.class_logits(model, features[:1], at_end)[0])


def test_cocoops_own_prediction_is_the_zero_shot_one():
    model = model_of()
    learned = tpt_lib.prompts.LearnedPrompt(torch.randn(4, 32), meta_net())
    prompts = class_prompts(model, NAMES, context=learned)
    features = F.normalize(torch.randn(12, 16), dim=-1)
    text = tpt_lib.encode_prompts(model, prompts, tpt_lib.prompts.conditional_context(prompts, features[0]))
    want = tpt_lib.class_logits(model, features[:1], text)[0]
    torch.testing.assert_close(tpt_predict(model, prompts, features).zero_shot.logits, want)


@pytest.mark.parametrize("steps", [0, 2])
def test_a_class_more_changes_no_other(steps):
    """Where the loss looks at the first three classes only, a fourth with the name of the first ends where the first does."""
    model = model_of()
    features = F.normalize(torch.randn(12, 16), dim=-1)
    once = tpt_predict(model, class_prompts(model, NAMES), features, steps=steps)
    first_three = {
        "select": lambda logits: tpt_lib.select_confident(logits[:, :3]),
        "objective": lambda logits: tpt_lib.marginal_entropy(logits[:, :3]),
    }
    with pytest.warns(UserWarning, match="1 of 4 classes have the same name as another"):
        prompts = class_prompts(model, [*NAMES, "cat"])
    twice = tpt_predict(model, prompts, features, steps=steps, **first_three)
    torch.testing.assert_close(twice.logits[:3], once.logits, atol=1e-3, rtol=1e-4)
    torch.testing.assert_close(twice.logits[3], once.logits[0], atol=1e-3, rtol=1e-4)
    torch.testing.assert_close(twice.context, once.context, atol=1e-5, rtol=0)
    torch.testing.assert_close(twice.probs, once.logits[[0, 1, 2, 0]].softmax(dim=0), atol=1e-4, rtol=1e-3)
    assert (torch.equal(once.logits, once.zero_shot.logits)) == (steps == 0)


def test_under_autocast():
    """In bfloat16 a similarity is right to 2**-8, which is 0.4 of a logit at scale 100; tuning moves them by over 10."""
    model = model_of()
    prompts = class_prompts(model, NAMES)
    want = tpt_classify(model, image(), prompts, n_views=16)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        got = tpt_classify(model, image(), prompts, n_views=16)
    assert got.logits.dtype == got.context.dtype == torch.float32
    assert 1e-3 < (got.zero_shot.logits - want.zero_shot.logits).abs().max() < 0.4, "the towers ran in bfloat16"
    assert (got.logits - want.logits).abs().max() < 0.4
    assert (want.logits - want.zero_shot.logits).abs().max() > 4
    steps = [(each.context - prompts.context).sign() for each in (got, want)]
    assert (steps[0] == steps[1]).float().mean() > 0.95


def test_a_compiled_model():
    want = tpt_classify(fresh("open_clip-vit"), image(), NAMES, n_views=16)
    compiled = tpt_lib.wrap(torch.compile(fresh("open_clip-vit").module, backend="eager"))
    same(tpt_classify(compiled, image(), NAMES, n_views=16), want)


class Forgiving(torch.optim.SGD):
    """Takes what is not finite in a gradient for 0, so that its steps are finite whatever it is given."""

    def step(self, closure=None):
        for token in self.param_groups[0]["params"]:
            token.grad = token.grad.nan_to_num(0, 0, 0)
        return super().step(closure)


NOT_FINITE = {
    "loss and gradient": lambda logits: logits.sum() * torch.nan,
    "loss": lambda logits: tpt_lib.marginal_entropy(logits) + torch.inf,
    "gradient": lambda logits: (logits.sum() * 0).sqrt(),
}


@pytest.mark.parametrize("optimizer", [torch.optim.AdamW, Forgiving])
@pytest.mark.parametrize("what", NOT_FINITE)
def test_what_is_not_finite_leaves_the_prompt_as_it_was(what, optimizer):
    model, prompts = model_of(), class_prompts(model_of(), NAMES)
    features = F.normalize(torch.randn(3, 12, 16), dim=-1)
    with pytest.warns(
        UserWarning, match="tune_prompt: a loss or gradient was not finite in 1 of 1 cases; those are left unchanged"
    ):
        result = tpt_predict(model, prompts, features[0], objective=NOT_FINITE[what], optimizer=optimizer, steps=2)
    assert not result.tuned
    assert "not tuned" in repr(result)
    assert torch.equal(result.logits, result.zero_shot.logits)
    assert torch.equal(result.context, prompts.context)
    json.loads(json.dumps(result.to_dict(), allow_nan=False))


def test_one_image_that_is_not_finite_leaves_the_others_alone():
    model, prompts = model_of(), class_prompts(model_of(), NAMES)
    features = F.normalize(torch.randn(3, 12, 16), dim=-1)
    seen = []

    def objective(logits):
        seen.append(1)
        loss = tpt_lib.marginal_entropy(logits)
        return loss * torch.nan if len(seen) == 2 else loss

    with pytest.warns(UserWarning, match="not finite in 1 of 3 cases"):
        batch = tpt_predict(model, prompts, features, objective=objective)
    assert batch.tuned.tolist() == [True, False, True]
    assert torch.equal(batch[1].logits, batch[1].zero_shot.logits)
    for i in (0, 2):
        same(batch[i], tpt_predict(model, prompts, features[i]))


def test_a_broken_model_is_an_error():
    features = F.normalize(torch.randn(12, 16), dim=-1)
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
    with pytest.raises(ValueError, match="batch_size must be at least 1, but got 0"):
        tpt_classify(model_of(), image(), NAMES, batch_size=0)
    with pytest.raises(TypeError, match="tpt_classify: unknown keyword 'step'; did you mean 'steps'"):
        tpt_classify(model_of(), image(), NAMES, step=0)
    with pytest.raises(ValueError, match="tunes the context of one template, but these prompts have 2"):
        tpt_classify(model_of(), image(), class_prompts(model_of(), NAMES, template=["a {}.", "the {}."]), n_views=4)
    with pytest.raises(ValueError, match="these prompts were made for another model"):
        tpt_classify(model_of(), image(), class_prompts(fresh("open_clip-vit"), NAMES), n_views=4)


@pytest.mark.slow
def test_no_memory_grows_from_image_to_image():
    resource = pytest.importorskip("resource")
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
