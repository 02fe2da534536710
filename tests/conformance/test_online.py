"""Every online method: what holds for each of them, whatever it computes."""

import dataclasses
import functools
import itertools
import math
import os
import subprocess
import sys

import pytest
import torch
from support.cases import state as state_of
from support.marking import slow_but
from support.prompting import words
from support.simulated import DEVICE, counting, on_host, to_simulated
from support.streams import CLASSES, EXPECTED, METHODS, stream_of

import tpt_lib
from tpt_lib import list_methods
from tpt_lib.methods import fold, load_state, onzeta, save_state, stream
from tpt_lib.methods.online import finish, initial_features
from tpt_lib.methods.stream import state_tensors

each = pytest.mark.parametrize("method", METHODS.values(), ids=METHODS.keys())
each_slow_if_it_tunes = pytest.mark.parametrize(
    "method",
    [
        pytest.param(method, id=name, marks=[pytest.mark.slow] if name.startswith(("dynaprompt", "dpe of")) else [])
        for name, method in METHODS.items()
    ],
)


def tensors(state):
    return state_tensors("test", state)


def same(one, other):
    return all(torch.equal(a, b) for a, b in zip(tensors(one).values(), tensors(other).values(), strict=True))


def copy(state):
    return {name: tensor.clone() for name, tensor in tensors(state).items()}


def test_no_method_is_forgotten():
    """TENT takes batches of images; ``methods/test_tent.py`` has what holds for it."""
    assert {name.split()[0] for name in METHODS} | {"tent"} == set(list_methods(online=True))


@each
@pytest.mark.parametrize(("names", "number"), [(CLASSES, 12), (CLASSES, 1), (CLASSES[:2], 2), (CLASSES[:1], 3)])
def test_predictions_are_finite_with_few_views_and_classes(method, names, number):
    model, prompts, images, text = stream_of(12, number, names=names)
    for views, found in zip(images, stream(method, model, prompts, images), strict=True):
        assert found.names == tuple(names)
        assert found.logits.dtype == torch.float32
        assert found.logits.isfinite().all()
        torch.testing.assert_close(found.zero_shot.logits, 100 * views[0] @ text.T, atol=1e-3, rtol=0)


@each
def test_identical_images(method):
    """A stream of one image over and over stays finite, and its caches fill with ties."""
    model, prompts, images, _ = stream_of(1)
    found = list(stream(method, model, prompts, images.expand(12, -1, -1)))
    assert all(one.logits.isfinite().all() for one in found)


def without_balance(method):
    """OnZeta expects all classes equally often, unless told otherwise."""
    return onzeta(expected=EXPECTED, alpha=0.0) if method is METHODS["onzeta"] else method


@each
def test_a_stream_of_one_class(method):
    """Where zero-shot is sure of the class, so is every method."""
    model, prompts, images, text = stream_of(120)
    images = images[(images[:, 0] @ text.T).argmax(dim=1) == 2]
    sure = [one.zero_shot.probs.max() > 0.9 for one in stream("tda", model, prompts, images)]
    assert sum(sure) > 5
    found = [one.index for one in stream(without_balance(method), model, prompts, images)]
    assert {index for index, clear in zip(found, sure, strict=True) if clear} == {2}


@each
def test_a_class_that_never_comes(method):
    """It changes nothing for an image of another class that is clear."""
    model, prompts, images, text = stream_of(40)
    images = images[(images[:, 0] @ text.T).argmax(dim=1) != 1]
    found = list(stream(without_balance(method), model, prompts, images))
    assert all(one.logits.isfinite().all() for one in found)
    assert all(one.index != 1 for one in found if one.zero_shot.probs.max() > 0.9)


@each
def test_the_first_image_depends_on_no_other(method):
    model, prompts, images, _ = stream_of(8)
    alone = [next(stream(method, model, prompts, one[None])).logits for one in images]
    together = [found.logits for found in stream(method, model, prompts, images)]
    assert torch.equal(together[0], alone[0])
    assert not all(map(torch.equal, together, alone)), "what came before counts"


LONG = """
import gc
import sys
import torch
from support.streams import CLASSES, METHODS, stream_of
from tpt_lib.methods.stream import state_tensors

model, prompts, images, _ = stream_of(100, 3, names=CLASSES[:2])
method = METHODS[sys.argv[1]]
state = method.init(model, prompts)
for i in range(10_000):
    state, found = method.step(model, prompts, state, images[i % 100])
    if i in (99, 9_999):
        gc.collect()
        alive = sum(issubclass(type(each), torch.Tensor) for each in gc.get_objects())
        print(alive, sum(x.untyped_storage().nbytes() for x in state_tensors("test", state).values()))
assert found.logits.isfinite().all()
"""


@pytest.mark.slow
@pytest.mark.parametrize("name", ["tda", "ecalp"])
def test_ten_thousand_images_in_bounded_memory(name):
    """Between the hundredth and the last image neither the state nor the number of tensors grows. A process of its own has no
    shape checks, which take most of the time here."""
    paths = {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-c", LONG, name], env={**os.environ, **paths}, capture_output=True, text=True, check=True
    )
    early, late = done.stdout.splitlines()
    assert early == late


@each
def test_classes_permuted_permute_the_output(method):
    model, prompts, images, _ = stream_of(12)
    order = torch.tensor([3, 0, 4, 2, 1])
    other = words(model, [CLASSES[i] for i in order])
    for one, permuted in zip(stream(method, model, prompts, images), stream(method, model, other, images), strict=True):
        torch.testing.assert_close(permuted.logits, one.logits[order], atol=5e-3, rtol=0)


@each
def test_views_permuted_change_nothing(method):
    model, prompts, images, _ = stream_of(12)
    order = torch.tensor([0, 5, 2, 7, 1, 3, 11, 10, 4, 9, 8, 6])
    for one, other in zip(
        stream(method, model, prompts, images), stream(method, model, prompts, images[:, order]), strict=True
    ):
        torch.testing.assert_close(one.logits, other.logits, atol=5e-3, rtol=0)


@each
def test_a_step_changes_nothing_it_was_given(method):
    model, prompts, images, _ = stream_of(12)
    before, given = state_of(model.module), images.clone()
    state = fold(method, model, prompts, images[:8])
    kept = copy(state)
    first, one = method.step(model, prompts, state, images[8])
    again, other = method.step(model, prompts, state, images[8])
    assert not same(first, state)
    assert same(first, again)
    assert torch.equal(one.logits, other.logits)
    assert all(torch.equal(kept[name], tensor) for name, tensor in tensors(state).items())
    assert state_of(model.module) == before
    assert torch.equal(images, given)


@each_slow_if_it_tunes
def test_states_keep_their_shapes_and_hold_no_graph(method):
    """So memory is bounded, however long the stream is."""
    model, prompts, images, _ = stream_of(30)
    layout = {name: (x.shape, x.dtype) for name, x in tensors(method.init(model, prompts)).items()}
    state = fold(method, model, prompts, (views.clone().requires_grad_() for views in images))
    assert {name: (x.shape, x.dtype) for name, x in tensors(state).items()} == layout
    assert not any(x.requires_grad for x in tensors(state).values())
    assert sum(x.untyped_storage().nbytes() for x in tensors(state).values()) == sum(
        x.numel() * x.element_size() for x in tensors(state).values()
    ), "a tensor that is a part of a larger one keeps all of it"


@each
@pytest.mark.parametrize(
    ("value", "row"), slow_but([(math.nan, 0), (math.inf, 3)], list(itertools.product([math.nan, math.inf], [0, 3])))
)
def test_what_is_not_finite_does_not_poison_the_state(method, value, row):
    model, prompts, images, _ = stream_of(10)
    state = fold(method, model, prompts, images[:6])
    kept, wrong = copy(state), images[6].clone()
    wrong[row, 2] = value
    with pytest.raises(ValueError, match="features are not all finite"):
        method.step(model, prompts, state, wrong)
    assert all(torch.equal(kept[name], tensor) for name, tensor in tensors(state).items())
    assert all(one.logits.isfinite().all() for one in stream(method, model, prompts, images[7:], state=state))


@each
def test_what_is_no_image_is_refused(method):
    model, prompts, images, _ = stream_of(3)
    state = method.init(model, prompts)
    with pytest.raises(
        ValueError, match=r"a step takes the features of one image's views \(N, E\), but got \(3, 12, 16\)"
    ):
        method.step(model, prompts, state, images)
    with pytest.raises(ValueError, match="features must have unit length"):
        method.step(model, prompts, state, 3 * images[0])
    with pytest.raises(
        ValueError, match=r"features must be floats of shape .* but got torch.float32 of shape \(0, 16\)"
    ):
        method.step(model, prompts, state, images[0, :0])


@each
def test_features_of_half_precision(method):
    """They are taken for the numbers that they are."""
    model, prompts, images, _ = stream_of(4)
    half = images.half()
    for one, other in zip(
        stream(method, model, prompts, half), stream(method, model, prompts, half.float()), strict=True
    ):
        assert torch.equal(one.logits, other.logits)


@pytest.mark.parametrize("broken", ["logits", "before"])
def test_logits_that_are_not_finite_are_refused(broken):
    _, prompts, images, _ = stream_of(1)
    given = {"logits": torch.zeros(5), "before": torch.zeros(5)}
    given[broken] = torch.tensor([0.0, 0.0, torch.nan, 0.0, torch.inf])
    with pytest.raises(ValueError, match="mine: 2 of 5 logits are not finite"):
        finish("mine", prompts, images[0], **given)


def test_a_state_shares_no_memory_with_the_prompts():
    model, prompts, images, _ = stream_of(1)
    want = tpt_lib.zero_shot_predict(model, prompts, images[0]).logits
    initial_features("mine", model, prompts).zero_()
    assert torch.equal(tpt_lib.zero_shot_predict(model, prompts, images[0]).logits, want)


@each_slow_if_it_tunes
def test_a_saved_state_continues_bit_for_bit(method, tmp_path):
    model, prompts, images, _ = stream_of(20)
    state = fold(method, model, prompts, images[:11])
    save_state(state, tmp_path / "state.safetensors", model, prompts)
    loaded = load_state(method, tmp_path / "state.safetensors", model, prompts)
    assert type(loaded) is type(state)
    assert same(loaded, state)
    whole = list(stream(method, model, prompts, images))[11:]
    rest = list(stream(method, model, prompts, images[11:], state=loaded))
    assert all(torch.equal(one.logits, other.logits) for one, other in zip(rest, whole, strict=True))


@functools.cache
def on_device():
    model, _, images, _ = stream_of(8)
    device = dataclasses.replace(model, module=to_simulated(model.module))
    return device, words(device, CLASSES), images


@each_slow_if_it_tunes
@pytest.mark.usefixtures("simulated")
def test_a_step_on_an_accelerator_waits_once(method):
    """For the check of the features, once the text tower is open; the results are those of the CPU."""
    model, prompts, images, _ = stream_of(8)
    device, there, _ = on_device()
    state = method.init(device, there)
    method.step(device, there, state, images[0].to(DEVICE))
    for views, want in zip(images, stream(method, model, prompts, images), strict=True):
        views = views.to(DEVICE)
        with counting() as counts:
            state, found = method.step(device, there, state, views)
        assert counts.synchronizations == 1, counts.waits
        assert counts.uploads == {}, counts.uploads
        torch.testing.assert_close(on_host(found.logits), want.logits, atol=5e-3, rtol=0)
