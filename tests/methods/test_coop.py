"""CoOp and CoCoOp: their gradients and steps against plain float64 ones, what they learn, save, resume and refuse."""

import functools
import inspect
import math

import pytest
import torch
import torch.nn.functional as F
from oracles.coop import plain_gradients
from support.cases import model_of
from support.fitting import DECAY, LABELS, LR, MOMENTUM, NAMES, features_of
from support.marking import slow_but
from support.zoo import fresh
from torch import nn

import tpt_lib
from tpt_lib import class_prompts, fit_cocoop, fit_coop, gaussian_context, load_prompt, save_prompt
from tpt_lib.methods.coop import _bar, new_meta_net
from tpt_lib.prompts.contexts import LearnedPrompt


class Recorder(torch.optim.SGD):
    """SGD as CoOp's, that remembers the gradients of every step."""

    seen = None

    def __init__(self, parameters, lr):
        super().__init__(parameters, lr=lr, momentum=MOMENTUM, weight_decay=DECAY)

    def step(self, closure=None):
        Recorder.seen.append([p.grad.clone() for group in self.param_groups for p in group["params"]])
        return super().step(closure)


CONTEXTS = {"1": (1, None), "16": (16, None), "class-specific": (4, len(NAMES))}


@pytest.mark.parametrize("kind", slow_but(["class-specific"], list(CONTEXTS)))
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


class Still(torch.optim.SGD):
    """An optimizer that stays where it is."""

    def step(self, _closure=None):
        return None


def test_losses_and_accuracies_are_means_over_the_images():
    """The last of the batches is smaller."""
    model, prompts, features = model_of(), class_prompts(model_of(), NAMES), features_of()
    fitted = fit_coop(model, prompts, features, LABELS, epochs=1, batch_size=3, optimizer=Still)
    logits = tpt_lib.class_logits(model, features, tpt_lib.encode_prompts(model, prompts)).detach()
    right = [int(row.argmax()) == label for row, label in zip(logits, LABELS.tolist(), strict=True)]
    assert fitted.accuracies == [pytest.approx(sum(right) / 7)]
    assert fitted.losses == [pytest.approx(F.cross_entropy(logits, LABELS).item(), rel=1e-4)]


def test_the_defaults_are_those_of_the_authors():
    def defaults(fit):
        found = {each.name: each.default for each in inspect.signature(fit).parameters.values()}
        return {name: found[name] for name in ("epochs", "batch_size", "lr", "seed") if name in found}

    assert defaults(fit_coop) == {"epochs": 50, "batch_size": 32, "lr": LR, "seed": 0}
    assert defaults(fit_cocoop) == {"epochs": 10, "batch_size": 1, "seed": 0}


@pytest.mark.parametrize("fit", [fit_coop, fit_cocoop])
def test_the_default_optimizer_is_coops(fit):
    model, prompts = model_of(), class_prompts(model_of(), NAMES)
    coops = functools.partial(torch.optim.SGD, momentum=MOMENTUM, weight_decay=DECAY)
    found, want = (fit(model, prompts, features_of(), LABELS, epochs=3, **o) for o in ({}, {"optimizer": coops}))
    assert torch.equal(found.prompts.context, want.prompts.context)
    assert not torch.equal(found.prompts.context, prompts.context)


@pytest.mark.parametrize(("batch", "seed"), [(1, 0), (3, 3), (7, 3)])
def test_cocoop_gradients_are_the_plain_ones(batch, seed):
    model, features = model_of(), features_of()
    prompts = class_prompts(model, NAMES)
    Recorder.seen = []
    options = {"epochs": 1, "batch_size": batch, "seed": seed, "optimizer": Recorder}
    fitted = fit_cocoop(model, prompts, features, LABELS, **options)
    assert len(Recorder.seen) == math.ceil(len(LABELS) / batch)
    first = torch.randperm(len(LABELS), generator=torch.Generator().manual_seed(seed))[:batch]
    net = new_meta_net(16, prompts.context, seed=seed)
    _, want = plain_gradients(model, prompts, prompts.context, list(net.parts), features[first], LABELS[first])
    for got, wanted in zip(Recorder.seen[0], want, strict=True):
        assert (got - wanted).norm() < 1e-4 * wanted.norm()
    assert [tuple(p.shape) for p in fitted.prompts.meta_net.parts] == [(1, 16), (1,), (32, 1), (32,)]


def test_a_new_network_starts_as_torch_layers_do():
    net = new_meta_net(512, torch.empty(3, 4, 256), seed=3)
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
@pytest.mark.slow
@pytest.mark.statistical
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


@pytest.mark.parametrize("patience", [1, 3])
def test_it_stops_early_on_request_and_keeps_the_best(patience):
    model, features = model_of(), features_of(20)
    labels = torch.arange(20) % 3
    prompts = class_prompts(model, NAMES)
    options = {"epochs": 30, "batch_size": 5, "lr": 0.5, "validation": (features_of(30, seed=9), torch.arange(30) % 3)}
    fitted = fit_coop(model, prompts, features, labels, patience=patience, **options)
    assert len(fitted.losses) < 30
    assert fitted.epoch == fitted.validation.index(max(fitted.validation)) + 1
    assert len(fitted.losses) == fitted.epoch + patience
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


def test_the_progress_of_a_run_that_resumes():
    bar = _bar(2, 5, progress=True)
    assert (bar.n, bar.total, list(bar)) == (2, 5, [2, 3, 4])


def test_bad_prompts():
    model = model_of()
    with pytest.raises(ValueError, match="no context to learn"):
        fit_coop(model, class_prompts(model, NAMES, template="{}."), features_of(), LABELS)
    for fit in (fit_coop, fit_cocoop):
        with pytest.raises(ValueError, match="fit_coop: tunes the context of one template, but these prompts have 2"):
            fit(model, class_prompts(model, NAMES, template=["a {}.", "the {}."]), features_of(), LABELS)
