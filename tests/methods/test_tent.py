"""TENT against a plain program, on CLIPs and classifiers, which stay as they are."""

import copy
import functools

import pytest
import torch
from oracles.memo import plain_tent
from support.cases import model_of
from support.cases import state as state_of
from support.classifiers import classifier, views_of
from support.marking import slow_but
from support.prompting import words
from torch import nn

import tpt_lib
from tpt_lib.methods import fold, load_state, save_state, stream, tda, tent
from tpt_lib.methods.tent import smallest_batch

NAMES = [str(i) for i in range(7)]


@functools.cache
def clip(name="open_clip-vit"):
    model = model_of(name)
    return model, words(model, ["cat", "red panda", "dog"])


def of_clip(model, prompts):
    text = tpt_lib.encode_prompts(model, prompts).detach().double()

    def forward(module, images):
        features = model.image_features(module, images)
        return 100 * features / features.norm(dim=-1, keepdim=True) @ text.T

    return forward


def norms_of(kinds, tower=lambda module: module):
    return lambda module: [part for part in tower(module).modules() if isinstance(part, kinds)]


def batches_of(count=3, number=4, size=32):
    return views_of(count * number, size).reshape(count, number, 3, size, size)


def close(found, want, atol):
    for one, other in zip(found, want, strict=True):
        torch.testing.assert_close(one.logits.double(), other, atol=atol, rtol=0)


@pytest.mark.parametrize(
    "name",
    slow_but(["open_clip-vit"], ["open_clip-vit", "openai", "transformers-clip", "open_clip-resnet"]),
)
@pytest.mark.parametrize("settings", [{}, {"steps": 3}, {"online": False}, {"online": False, "steps": 3}])
def test_a_clip_as_the_plain_program(name, settings):
    """Adam divides by |g|, so where a gradient is near 0 float32 may step the other way."""
    model, prompts = clip(name)
    size = model.image_spec.size[0]
    batches = batches_of(size=size)
    norms = norms_of((nn.LayerNorm, nn.BatchNorm2d), model.image_tower)
    want = plain_tent(model.module, of_clip(model, prompts), norms, batches, **settings)
    close(stream(tent(**settings), model, prompts, batches), want, atol=2e-2)


@pytest.mark.parametrize("name", ["resnet18", "vit_b_16"])
@pytest.mark.parametrize("settings", slow_but([{}], [{}, {"online": False, "steps": 2}]))
def test_a_classifier_as_the_plain_program(name, settings):
    """In float64, as Adam divides by |g|. The first has batch norms, the second layer norms."""
    module, batches = copy.deepcopy(classifier(name)).double(), batches_of().double()
    norms = norms_of((nn.LayerNorm, nn.BatchNorm2d))
    want = plain_tent(module, lambda module, images: module(images), norms, batches, **settings)
    close(stream(tent(**settings), module, NAMES, batches), want, atol=1e-5)


def test_it_predicts_before_it_updates():
    """So the first batch is zero-shot where norms have no statistics, and the second is not."""
    model, prompts = clip()
    first, second = stream("tent", model, prompts, batches_of(2))
    torch.testing.assert_close(first.logits, first.zero_shot.logits, atol=1e-4, rtol=0)
    assert not torch.allclose(second.logits, second.zero_shot.logits, atol=1e-2)
    assert first.tuned.tolist() == [True] * 4


def test_the_state_has_the_norms_of_the_image_tower_alone():
    model, prompts = clip()
    norms = norms_of(nn.LayerNorm, model.image_tower)(model.module)
    assert len(tent().init(model, prompts).weights) == sum(p.numel() for norm in norms for p in norm.parameters())
    assert len(norms) < len(norms_of(nn.LayerNorm)(model.module))


def test_each_batch_alone_starts_from_the_original_weights():
    model, prompts = clip()
    method, batches = tent(online=False, steps=2), batches_of(2)
    start = method.init(model, prompts)
    state, first = method.step(model, prompts, start, batches[0])
    assert torch.equal(state.weights, start.weights)
    assert torch.equal(
        next(stream(method, model, prompts, batches[1:])).logits,
        method.step(model, prompts, state, batches[1])[1].logits,
    )
    assert not torch.allclose(first.logits, first.zero_shot.logits, atol=1e-2)


@pytest.mark.parametrize("online", slow_but([True], [True, False]))
def test_what_was_given_stays_as_it_is(online):
    model, prompts = clip("open_clip-resnet")
    module = classifier("resnet18")
    before = state_of(model.module), state_of(module)
    batches = batches_of(2)
    given = batches.clone()
    method = tent(online=online, steps=2)
    state = fold(method, model, prompts, batches[:1])
    kept = state.weights.clone(), state.mean.clone(), state.square.clone(), state.steps.clone()
    one, other = (method.step(model, prompts, state, batches[1])[1].logits for _ in range(2))
    assert torch.equal(one, other)
    assert all(
        torch.equal(a, b) for a, b in zip(kept, (state.weights, state.mean, state.square, state.steps), strict=True)
    )
    fold(method, module, NAMES, batches)
    assert (state_of(model.module), state_of(module)) == before
    assert torch.equal(batches, given)


@pytest.mark.parametrize("of", slow_but(["clip"], ["clip", "classifier"]))
def test_a_saved_state_continues_bit_for_bit(of, tmp_path):
    model, prompts = clip() if of == "clip" else (classifier("resnet18"), NAMES)
    batches = batches_of(3)
    state = fold("tent", model, prompts, batches[:2])
    save_state(state, tmp_path / "state.safetensors", model, prompts)
    loaded = load_state("tent", tmp_path / "state.safetensors", model, prompts)
    *_, want = stream("tent", model, prompts, batches)
    (found,) = stream("tent", model, prompts, batches[2:], state=loaded)
    assert torch.equal(found.logits, want.logits)
    assert not loaded.weights.requires_grad
    assert not state.weights.requires_grad  # or each state would hold the graphs of those before it


def test_the_state_of_another_classifier_is_refused(tmp_path):
    module = classifier("resnet18")
    save_state(tent().init(module, NAMES), tmp_path / "state.safetensors", module, NAMES)
    with pytest.raises(ValueError, match="has the state of another model"):
        load_state("tent", tmp_path / "state.safetensors", classifier("vit_b_16"), NAMES)
    with pytest.raises(ValueError, match="has the state of other prompts"):
        load_state("tent", tmp_path / "state.safetensors", module, NAMES[::-1])
    with pytest.raises(ValueError, match=r"tent: the state has 9600 weights of norms, but this model has"):
        tent().step(classifier("vit_b_16"), NAMES, tent().init(module, NAMES), batches_of(1)[0])


def test_chunks_change_nothing():
    model, prompts = clip()
    one, other = (list(stream(tent(chunk=chunk), model, prompts, batches_of())) for chunk in (1, 3))
    close(one, [found.logits.double() for found in other], atol=2e-2)


def test_what_is_not_finite_does_not_poison_the_state():
    model, prompts = clip()
    wrong = batches_of(1)[0]
    wrong[1, 0, 0, 0] = torch.nan
    state = tent().init(model, prompts)
    with pytest.raises(ValueError, match="tent: the images must be finite"):
        tent().step(model, prompts, state, wrong)
    with pytest.warns(UserWarning, match="tent: a loss or gradient was not finite in 1 of 1 cases"):
        after, found = tent(lr=float("inf")).step(model, prompts, state, batches_of(1)[0])
    assert after is state
    assert not found.tuned.any()
    assert found.logits.isfinite().all()


@pytest.mark.parametrize(
    ("images", "message"),
    [
        (torch.zeros(3, 32, 32), r"a batch of preprocessed images, floats \(B, 3, H, W\), but got"),
        (torch.zeros(2, 3, 32, 32).byte(), "a batch of preprocessed images"),
        (torch.zeros(0, 3, 32, 32), "a batch of preprocessed images"),
    ],
)
def test_what_is_no_batch_is_refused(images, message):
    model, prompts = clip()
    with pytest.raises(ValueError, match=message):
        tent().step(model, prompts, tent().init(model, prompts), images)


@pytest.mark.usefixtures("no_shape_checks")
def test_errors():
    model, _ = clip()
    with pytest.raises(ValueError, match="tent: steps and chunk must be at least 1, but got 0 and 8"):
        tent(steps=0)
    with pytest.raises(ValueError, match="tent: steps and chunk must be at least 1, but got 1 and 0"):
        tent(chunk=0)
    with pytest.raises(ValueError, match="tent: Linear has no layer norm or batch norm with weights"):
        tent().init(nn.Linear(2, 2), NAMES)
    with pytest.raises(TypeError, match="tent: model must be a classifier, or a model that wrap or a loader made"):
        tent().init(object(), NAMES)
    with pytest.raises(TypeError, match="tent: a CLIP needs prompts from class_prompts, but got list"):
        next(stream("tent", model, NAMES, batches_of(1)))
    module = classifier("resnet18")
    with pytest.raises(ValueError, match="tent: batch norms need the statistics of 2 or more images, but got 1"):
        next(stream("tent", module, NAMES, batches_of(1, 1)))
    with pytest.raises(ValueError, match="tent: there are 2 names and 7 logits; give a name for each"):
        next(stream("tent", module, NAMES[:2], batches_of(1)))
    with pytest.raises(
        ValueError, match="tent: the classifier must be in eval mode, but the module itself is in train"
    ):
        next(stream("tent", nn.Sequential(nn.BatchNorm2d(3)), NAMES, batches_of(1)))


@pytest.mark.parametrize(("name", "size"), [("open_clip-resnet", 2), ("open_clip-vit", 1)])
def test_the_smallest_batch_is_two_with_batch_norms(name, size):
    model, _ = clip(name)
    assert smallest_batch(tent(online=False, steps=3), model) == size
    assert smallest_batch(tda(), model) == 1


def test_images_with_a_gradient_and_a_classifier_that_works_in_place():
    """Autograd refuses changes to a tensor that unbind returned."""
    module = nn.Sequential(nn.ReLU(inplace=True), classifier("resnet18")).eval()
    images = batches_of(1).abs()
    want, got = (next(stream(tent(), module, NAMES, each)) for each in (images, images.clone().requires_grad_()))
    assert torch.equal(got.logits, want.logits)


def test_in_inference_mode():
    model, prompts = clip()
    want = [found.logits for found in stream("tent", model, prompts, batches_of())]
    with torch.inference_mode():
        found = [one.logits for one in stream("tent", model, prompts, batches_of())]
    assert all(torch.equal(a, b) for a, b in zip(found, want, strict=True))
