"""CoOp and CoCoOp: their gradients and steps against plain float64 ones, what they learn, save, resume and refuse."""

import functools
import math
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from oracles.tpt import Put, float64, plain_text
from support.cases import model_of
from support.zoo import fresh
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import tpt_lib
from tpt_lib import class_prompts, fit_cocoop, fit_coop, gaussian_context, load_prompt, save_prompt
from tpt_lib.methods.coop import new_meta_net
from tpt_lib.prompts.contexts import LearnedPrompt

NAMES = ["cat", "red panda", "dog"]
LABELS = torch.tensor([0, 1, 2, 2, 1, 0, 1])
MOMENTUM, DECAY, LR = 0.9, 5e-4, 2e-3


def features_of(count=7, seed=0, width=16):
    return F.normalize(torch.randn(count, width, generator=torch.Generator().manual_seed(seed)), dim=-1)


class Recorder(torch.optim.SGD):
    """SGD as CoOp's, that remembers the gradients of every step."""

    seen = None

    def __init__(self, parameters, lr):
        super().__init__(parameters, lr=lr, momentum=MOMENTUM, weight_decay=DECAY)

    def step(self, closure=None):
        Recorder.seen.append([p.grad.clone() for group in self.param_groups for p in group["params"]])
        return super().step(closure)


def plain_gradients(model, prompts, context, net, features, labels):
    """Of the mean cross-entropy, each image with its own context where there is a network."""
    module = float64(model.module)
    free = [t.double().detach().requires_grad_() for t in (context, *net)]
    columns = torch.arange(1, 1 + context.shape[-2]).expand(len(prompts.names), -1)
    losses = []
    for feature, label in zip(features.double(), labels, strict=True):
        own = free[0]
        if net:
            own = own + free[3] @ torch.relu(free[1] @ feature + free[2]) + free[4]
        text = plain_text(module, prompts.ids, Put(columns, own))
        losses.append(-(float(model.logit_scale) * text @ feature).log_softmax(dim=0)[label])
    loss = torch.stack(losses).mean()
    return loss.detach(), torch.autograd.grad(loss, free)


CONTEXTS = {"4": (4, None), "16": (16, None), "class-specific": (4, len(NAMES))}


@pytest.mark.parametrize("kind", CONTEXTS)
def test_coop_gradients_and_steps_are_the_plain_ones(kind):
    length, n_classes = CONTEXTS[kind]
    model, features = model_of(), features_of()
    prompts = class_prompts(model, NAMES, context=gaussian_context(model, length, n_classes=n_classes))
    Recorder.seen = []
    fitted = fit_coop(model, prompts, features, LABELS, epochs=3, optimizer=Recorder)
    context, momentum = prompts.context.double(), torch.zeros_like(prompts.context).double()
    rates = [1e-5, LR, LR * (1 + math.cos(math.pi / 3)) / 2]
    for rate, (got,), loss in zip(rates, Recorder.seen, fitted.losses, strict=True):
        want_loss, (want,) = plain_gradients(model, prompts, context, [], features, LABELS)
        assert (got - want).norm() < 1e-4 * want.norm()
        assert abs(loss - want_loss) < 1e-4 * abs(want_loss)
        momentum = MOMENTUM * momentum + want + DECAY * context
        context = context - rate * momentum
    assert (fitted.prompts.context - context).norm() < 1e-4 * (prompts.context - context).norm()


@pytest.mark.parametrize("batch", [1, 3, 7])
def test_cocoop_gradients_are_the_plain_ones(batch):
    model, features = model_of(), features_of()
    prompts = class_prompts(model, NAMES)
    Recorder.seen = []
    fitted = fit_cocoop(model, prompts, features, LABELS, epochs=1, batch_size=batch, optimizer=Recorder)
    assert len(Recorder.seen) == math.ceil(len(LABELS) / batch)
    first = torch.randperm(len(LABELS), generator=torch.Generator().manual_seed(0))[:batch]
    net = new_meta_net(16, prompts.context, seed=0)
    _, want = plain_gradients(model, prompts, prompts.context, list(net.parts), features[first], LABELS[first])
    for got, wanted in zip(Recorder.seen[0], want, strict=True):
        assert (got - wanted).norm() < 1e-4 * wanted.norm()
    assert [tuple(p.shape) for p in fitted.prompts.meta_net.parts] == [(1, 16), (1,), (32, 1), (32,)]


def test_a_new_network_starts_as_torch_layers_do():
    net = new_meta_net(512, torch.empty(4, 256), seed=3)
    for weight, bias, (fan_in, fan_out) in [(net.weight1, net.bias1, (512, 32)), (net.weight2, net.bias2, (32, 256))]:
        layer = nn.Linear(fan_in, fan_out)
        assert weight.shape == layer.weight.shape
        assert bias.shape == layer.bias.shape
        assert abs(weight.std() / layer.weight.std() - 1) < 0.05
        assert weight.abs().max() <= 1 / math.sqrt(fan_in)
        assert bias.abs().max() <= 1 / math.sqrt(fan_in)


@functools.cache
def digits():
    """Real images of ten classes, under a small tower with random weights, whose features tell them apart a little."""
    import sklearn.datasets

    model = fresh("open_clip-vit")
    data = sklearn.datasets.load_digits()
    pixels = torch.tensor(data.images / 16).float()[:, None].expand(-1, 3, -1, -1)
    with torch.no_grad():
        model.module.logit_scale.fill_(math.log(30))
    features = tpt_lib.encode_images(model, list(pixels))
    mean = features.mean(dim=0)  # a random tower gives all images nearly one direction
    return model, F.normalize(features - mean, dim=-1), torch.tensor(data.target)


DIGITS = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]


def accuracy(model, prompts, features, labels):
    text = tpt_lib.encode_prompts(model, prompts)
    return float((tpt_lib.class_logits(model, features, text).argmax(dim=-1) == labels).float().mean())


@pytest.mark.parametrize("length", [4, 16])
def test_coop_with_16_shots_beats_the_hand_crafted_prompt_and_tpt_goes_on_from_it(length):
    model, features, labels = digits()
    shots = tpt_lib.evaluation.sample_few_shot(labels, 16)
    held_out = torch.ones(len(labels), dtype=torch.bool)
    held_out[shots] = False
    crafted = class_prompts(model, DIGITS)
    start = class_prompts(model, DIGITS, context=gaussian_context(model, length))
    fitted = fit_coop(model, start, features[shots], labels[shots], epochs=100)
    before = accuracy(model, crafted, features[held_out], labels[held_out])
    after = accuracy(model, fitted.prompts, features[held_out], labels[held_out])
    assert after > max(before, 0.1) + 0.05  # 0.1 is chance
    views = features[held_out][:64]
    assert tpt_lib.tpt_predict(model, fitted.prompts, views).tuned


class StopError(Exception):
    pass


@pytest.mark.parametrize("fit", [fit_coop, fit_cocoop])
@pytest.mark.parametrize("patience", [None, 5])
def test_an_interrupted_run_resumes_where_it_was(fit, patience, tmp_path):
    model, features = model_of(), features_of(20)
    labels = torch.arange(20) % 3
    prompts = class_prompts(model, NAMES)
    options = {"epochs": 5, "batch_size": 6, "seed": 4, "patience": patience, "validation": (features, labels)}
    whole = fit(model, prompts, features, labels, **options)
    seen = []

    class Breaks(torch.optim.SGD):
        def __init__(self, parameters, lr):
            super().__init__(parameters, lr=lr, momentum=MOMENTUM, weight_decay=DECAY)

        def step(self, closure=None):
            seen.append(1)
            if len(seen) == 11:  # in the third epoch
                raise StopError
            return super().step(closure)

    file = tmp_path / "model.pth.tar"
    with pytest.raises(StopError):
        fit(model, prompts, features, labels, checkpoint=file, optimizer=Breaks, **options)
    assert len(torch.load(file, weights_only=True)["resume"]["history"]["losses"]) == 2
    resumed = fit(model, prompts, features, labels, checkpoint=file, **options)
    again = fit(model, prompts, features, labels, checkpoint=file, **options)  # a finished run is not run again
    for other in (resumed, again):
        assert torch.equal(other.prompts.context, whole.prompts.context)
        assert (other.losses, other.accuracies, other.validation) == (whole.losses, whole.accuracies, whole.validation)
        assert other.epoch == whole.epoch
        if whole.prompts.meta_net is not None:
            assert all(map(torch.equal, other.prompts.meta_net.parts, whole.prompts.meta_net.parts))
    elsewhere = replace(prompts, context=prompts.context + 1)
    with pytest.raises(ValueError, match=r"belongs to a run with different settings \(checksum of the start is"):
        fit(model, elsewhere, features, labels, checkpoint=file, **options)
    with pytest.raises(ValueError, match=r"different settings \(batch_size is 6 there and 7 here\)"):
        fit(model, prompts, features, labels, checkpoint=file, **{**options, "batch_size": 7})
    assert not list(tmp_path.glob("*.part"))


def test_it_stops_early_on_request_and_keeps_the_best():
    model, features = model_of(), features_of(20)
    labels = torch.arange(20) % 3
    prompts = class_prompts(model, NAMES)
    options = {"epochs": 30, "batch_size": 5, "lr": 0.5, "validation": (features_of(30, seed=9), torch.arange(30) % 3)}
    fitted = fit_coop(model, prompts, features, labels, patience=3, **options)
    assert len(fitted.losses) < 30
    assert fitted.epoch == fitted.validation.index(max(fitted.validation)) + 1
    assert len(fitted.losses) == fitted.epoch + 3
    found = accuracy(model, fitted.prompts, *options["validation"])
    assert abs(found - max(fitted.validation)) < 1e-6


class TheirLearner(nn.Module):
    """The parameters of CoOp's and CoCoOp's prompt learners, under the names they have there."""

    def __init__(self, length, width, embedding, *, net):
        super().__init__()
        self.ctx = nn.Parameter(torch.empty(length, embedding))
        self.register_buffer("token_prefix", torch.zeros(3, 1, embedding))
        if net:
            self.meta_net = nn.Sequential()
            self.meta_net.add_module("linear1", nn.Linear(width, width // 16))
            self.meta_net.add_module("relu", nn.ReLU())
            self.meta_net.add_module("linear2", nn.Linear(width // 16, embedding))


@pytest.mark.parametrize("net", [False, True])
def test_their_format_both_ways(net, tmp_path):
    model = model_of()
    theirs = TheirLearner(4, 16, 32, net=net)
    nn.init.normal_(theirs.ctx)
    torch.save({"state_dict": theirs.state_dict(), "epoch": 50, "val_result": 71.2}, tmp_path / "theirs")
    prompts = class_prompts(model, NAMES, context=load_prompt(tmp_path / "theirs"))
    assert torch.equal(prompts.context, theirs.ctx)
    save_prompt(tmp_path / "ours", prompts, epoch=3, val_result=12.5)
    saved = torch.load(tmp_path / "ours", weights_only=True)
    other = TheirLearner(4, 16, 32, net=net)
    missing, unexpected = other.load_state_dict(saved["state_dict"], strict=False)
    assert (missing, unexpected) == (["token_prefix"], [])
    assert (saved["epoch"], f"{saved['val_result']:.1f}") == (3, "12.5")
    assert all(torch.equal(a, b) for a, b in zip(other.parameters(), theirs.parameters(), strict=True))
    if net:
        feature = features_of(1)
        shift = tpt_lib.prompts.conditional_context(prompts, feature) - prompts.context
        assert torch.allclose(shift[0, 0], other.meta_net(feature)[0], atol=1e-6)


def test_a_failing_save_leaves_the_old_file(tmp_path):
    save_prompt(tmp_path / "p", LearnedPrompt(torch.ones(2, 4)))
    with pytest.raises(AttributeError, match="lambda"):
        save_prompt(tmp_path / "p", LearnedPrompt(torch.zeros(2, 4)), unsaveable=lambda: 0)
    assert torch.equal(load_prompt(tmp_path / "p").context, torch.ones(2, 4))


def test_images_are_cropped_anew_in_each_epoch_and_reproducibly(photo):
    model = fresh("open_clip-vit")
    images, labels = [photo, photo.rotate(90), photo.rotate(180)], [0, 1, 2]
    seen = []
    encode = model.module.visual.register_forward_hook(lambda _m, inputs, _o: seen.append(inputs[0].clone()))
    prompts = class_prompts(model, NAMES)
    first = fit_coop(model, prompts, images, labels, epochs=2, seed=1)
    encode.remove()
    assert [len(part) for part in seen] == [3, 3]
    assert not torch.equal(seen[0].sum(dim=0), seen[1].sum(dim=0))
    assert torch.equal(
        first.prompts.context, fit_coop(model, prompts, images, labels, epochs=2, seed=1).prompts.context
    )
    other = fit_coop(model, prompts, images, labels, epochs=2, seed=2)
    assert not torch.equal(first.prompts.context, other.prompts.context)


@pytest.mark.parametrize("kind", ["pixels", "features"])
def test_loaders(kind):
    model = fresh("open_clip-vit")
    pixels = torch.randn(7, 3, 32, 32)
    features = tpt_lib.encode_views(model, pixels)
    loader = DataLoader(TensorDataset(pixels if kind == "pixels" else 3 * features, LABELS), batch_size=7)
    prompts = class_prompts(model, NAMES)
    got = fit_coop(model, prompts, loader, epochs=3)
    want = fit_coop(model, prompts, features, LABELS, epochs=3)
    assert torch.allclose(got.prompts.context, want.prompts.context, atol=1e-7)


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_inside_the_callers_modes(mode):
    model = model_of()
    want = fit_coop(model, class_prompts(model, NAMES), features_of(), LABELS, epochs=3)
    with mode():
        prompts = class_prompts(model, NAMES)
        got = fit_coop(model, prompts, features_of(), LABELS, epochs=3)
    assert torch.equal(got.prompts.context, want.prompts.context)
    assert got.losses == want.losses
    assert not torch.equal(got.prompts.context, prompts.context)
    assert not got.prompts.context.requires_grad


@pytest.mark.parametrize("progress", [True, False])
def test_progress(progress, capsys):
    fit_coop(model_of(), class_prompts(model_of(), NAMES), features_of(), LABELS, epochs=1, progress=progress)
    assert ("epochs" in capsys.readouterr().err) == progress


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"labels": [0, 1]}, "for 7 images labels must be 7 ints"),
        ({"labels": LABELS + 1}, r"labels are 0\.\.2, but got 1\.\.3"),
        ({"labels": LABELS.float()}, "must be 7 ints, but got torch.float32"),
        ({"images": features_of(width=5)}, "features have width 5, this model's have 16"),
        ({"images": features_of() / 0}, "finite"),
        ({"epochs": 0}, "epochs and batch_size must be at least 1"),
        ({"batch_size": 0}, "epochs and batch_size must be at least 1"),
        ({"patience": 2}, "patience must be at least 1 and needs validation"),
        ({"images": [], "labels": []}, "no images to learn from"),
        ({"images": iter([]), "labels": None}, "gave no batch"),
    ],
)
def test_bad_input(change, message, no_shape_checks):
    model = model_of()
    arguments = {"images": features_of(), "labels": LABELS} | change
    with pytest.raises(ValueError, match=message):
        fit_coop(model, class_prompts(model, NAMES), **arguments)


def test_bad_prompts():
    model = model_of()
    with pytest.raises(ValueError, match="no context to learn"):
        fit_coop(model, class_prompts(model, NAMES, template="{}."), features_of(), LABELS)
    for fit in (fit_coop, fit_cocoop):
        with pytest.raises(ValueError, match="fit_coop: tunes the context of one template, but these prompts have 2"):
            fit(model, class_prompts(model, NAMES, template=["a {}.", "the {}."]), features_of(), LABELS)


class Poisoned(torch.optim.SGD):
    """CoOp's SGD, which finds a gradient that is not finite in one step of all."""

    steps, at = 0, None

    def __init__(self, parameters, lr):
        super().__init__(parameters, lr=lr, momentum=MOMENTUM, weight_decay=DECAY)

    def step(self, closure=None):
        Poisoned.steps += 1
        if Poisoned.steps == Poisoned.at:
            self.param_groups[0]["params"][0].grad[0, 0] = torch.nan
        return super().step(closure)


@pytest.mark.parametrize("fit", [fit_coop, fit_cocoop])
@pytest.mark.parametrize("at", [7, 9])  # the first and the last step of the third epoch
def test_a_gradient_that_is_not_finite_ends_learning_at_the_epoch_before(fit, at, tmp_path):
    model, features = model_of(), features_of()
    prompts = class_prompts(model, NAMES)
    options = {"batch_size": 3, "seed": 4, "epochs": 5}
    file = tmp_path / "model.pth.tar"
    whole = fit(model, prompts, features, LABELS, **options)
    Poisoned.steps, Poisoned.at = 0, at
    with pytest.warns(UserWarning, match="fit_coop: a loss or gradient was not finite in 1 of 1 cases"):
        ended = fit(model, prompts, features, LABELS, checkpoint=file, optimizer=Poisoned, **options)
    assert not ended.applied
    assert whole.applied
    assert ended.epoch == 2
    assert ended.losses == whole.losses[:2]
    assert ended.accuracies == whole.accuracies[:2]
    saved = load_prompt(file)
    assert torch.equal(ended.prompts.context, saved.context)
    assert ended.prompts.context.isfinite().all()
    if fit is fit_cocoop:
        assert all(map(torch.equal, ended.prompts.meta_net.parts, saved.meta_net.parts))
    resumed = fit(model, prompts, features, LABELS, checkpoint=file, **options)
    assert resumed.applied
    assert torch.equal(resumed.prompts.context, whole.prompts.context)
    assert resumed.losses == whole.losses


def test_a_loss_that_is_not_finite_in_the_first_epoch_leaves_the_start():
    model, prompts = model_of(), class_prompts(model_of(), NAMES)
    batches = [(features_of(), LABELS), (features_of(seed=1), LABELS)]
    Poisoned.steps, Poisoned.at = 0, 1
    with pytest.warns(UserWarning, match="fit_coop: a loss or gradient was not finite"):
        fitted = fit_coop(model, prompts, batches, epochs=3, optimizer=Poisoned)
    assert (fitted.applied, fitted.epoch, fitted.losses, fitted.accuracies) == (False, 0, [], [])
    assert torch.equal(fitted.prompts.context, prompts.context)


def test_a_rate_that_is_far_too_high(tmp_path):
    """What is kept is finite and can be used, though the step that broke it had a finite gradient itself."""
    model, prompts, file = model_of(), class_prompts(model_of(), NAMES), tmp_path / "model.pth.tar"
    with pytest.warns(UserWarning, match="fit_coop: a loss or gradient was not finite"):
        fitted = fit_coop(model, prompts, features_of(), LABELS, epochs=5, lr=1e38, checkpoint=file)
    assert not fitted.applied
    for context in (fitted.prompts.context, load_prompt(file).context):
        assert context.isfinite().all()
        assert tpt_lib.encode_prompts(model, class_prompts(model, NAMES, context=context)).isfinite().all()
