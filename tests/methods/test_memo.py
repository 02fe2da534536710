"""MEMO against a plain loop on a deep copy, on torchvision's architectures; what it refuses."""

import copy
import functools
import math

import pytest
import torch
import torchvision
from oracles.memo import plain_memo
from oracles.tpt import plain_loss
from support.classifiers import ARCHITECTURES, Tied, classifier, close, size_of, views_of
from support.marking import slow_but
from torch import nn

import tpt_lib
from tpt_lib import memo_classify
from tpt_lib.methods import memo_predict


@pytest.mark.parametrize("name", slow_but(["mobilenet_v3_small", "squeezenet1_1", "vit_b_16", "swin_t"], ARCHITECTURES))
def test_memo_is_the_plain_method(name):
    module, views = classifier(name), views_of(size=size_of(name))
    found = memo_predict(module, views, lr=0.5, chunk=4)
    want, losses, selected = plain_memo(module, views, lr=0.5)
    with torch.no_grad():
        torch.testing.assert_close(found.zero_shot.logits, module(views[:1])[0])
    still = plain_memo(module, views, steps=0)[0]
    close(found.logits, want, still)
    torch.testing.assert_close(memo_predict(module, views, steps=0).logits.double(), still, atol=1e-5, rtol=1e-5)
    assert math.isclose(found.loss_before, losses[0], rel_tol=1e-4)
    assert sorted(found.selected.tolist()) == sorted(selected.tolist())
    assert found.tuned


@pytest.mark.parametrize("options", [
    {"fraction": 0.7}, {"fraction": 0.5, "steps": 2}, {"fraction": 0.1}, {"prior": None}, {"prior": 4.0, "steps": 3},
    {"prior": 0.0}, {"prior": None, "fraction": 0.3, "steps": 2},
], ids=str)  # fmt: skip
@pytest.mark.slow
def test_options_are_the_plain_methods(options):
    module, views = classifier("resnet18"), views_of()
    found = memo_predict(module, views, lr=0.01, chunk=3, **options)
    want, losses, selected = plain_memo(module, views, lr=0.01, **options)
    close(found.logits, want, plain_memo(module, views, prior=options.get("prior", 16), steps=0)[0])
    assert found.selected.tolist() == selected.tolist() or options.get("fraction", 1) == 1
    assert math.isclose(found.loss_before, losses[0], rel_tol=1e-4)


@pytest.mark.parametrize("name", ["resnet18", "vit_b_16"])
@pytest.mark.slow
def test_laws(name):
    module, views = classifier(name), views_of(6, size_of(name))
    one = memo_predict(module, views, lr=0.05, chunk=6)
    for chunk in (1, 4, 100):
        torch.testing.assert_close(
            memo_predict(module, views, lr=0.05, chunk=chunk).logits, one.logits, atol=1e-4, rtol=1e-4
        )
    still = memo_predict(module, views, lr=0.0, prior=None)
    torch.testing.assert_close(still.logits, still.zero_shot.logits)
    none = memo_predict(module, views, steps=0, prior=None)
    torch.testing.assert_close(none.logits, none.zero_shot.logits)
    assert not none.tuned
    assert none.selected is None
    mixed = torch.cat([views[:1], views[1:].flip(0)])
    torch.testing.assert_close(memo_predict(module, mixed, lr=0.05).logits, one.logits, atol=1e-4, rtol=1e-4)
    many = memo_predict(module, views[:1].expand(6, -1, -1, -1), lr=0.05, prior=None)
    alone = memo_predict(module, views[:1], lr=0.05, prior=None)
    torch.testing.assert_close(many.logits, alone.logits, atol=1e-4, rtol=1e-4)
    assert alone.entropy < alone.zero_shot.entropy


@pytest.mark.slow
def test_the_defaults_are_memos():
    module, views = classifier("resnet18"), views_of(5)
    same = {"fraction": 1.0, "steps": 1, "lr": 2.5e-4, "prior": 16.0, "optimizer": torch.optim.SGD}
    assert torch.equal(memo_predict(module, views).logits, memo_predict(module, views, **same).logits)
    group = torch.optim.SGD([torch.zeros(1)], lr=1.0).param_groups[0]
    assert (group["weight_decay"], group["momentum"]) == (0, 0)


def test_the_default_preprocessing_is_that_of_torchvisions_classifiers():
    want = torchvision.models.ResNet18_Weights.IMAGENET1K_V1.transforms()
    spec = tpt_lib.methods.memo.IMAGENET
    assert (spec.mean, spec.std) == (tuple(want.mean), tuple(want.std))
    assert (spec.size, spec.interpolation) == (tuple(2 * want.crop_size), want.interpolation.value)


@pytest.mark.slow
def test_from_an_image(photo):
    module, spec = classifier("resnet18"), tpt_lib.ImageSpec((64, 64))
    names = ["a", "b", "c", "d", "e", "f", "g"]
    found = memo_classify(module, photo, spec=spec, n_views=5, seed=3, names=names, fraction=0.5)
    views = tpt_lib.augment_views(photo, spec, n_views=5, recipe="augmix", seed=3)
    assert torch.equal(found.logits, memo_predict(module, views, fraction=0.5).logits)
    assert found.names == tuple(names)
    assert memo_predict(module, views).names == tuple("0123456")
    small = nn.Sequential(nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(12, 3)).eval()
    seen = []
    small[0].register_forward_pre_hook(lambda _, x: seen.append(x[0]))
    found = memo_classify(small, photo)
    assert found.tuned
    assert sum(map(len, seen[1:9])) == 64
    assert seen[0].equal(tpt_lib.views.preprocess(photo, tpt_lib.methods.memo.IMAGENET)[None])


def test_another_optimizer():
    module, views = classifier("vit_b_16"), views_of(4, 32)
    adam = functools.partial(torch.optim.AdamW, weight_decay=0.0)
    found = memo_predict(module, views, optimizer=adam, lr=1e-3, steps=2)
    oracle = copy.deepcopy(module)
    optimizer = adam(oracle.parameters(), lr=1e-3)
    for _ in range(2):
        optimizer.zero_grad()
        plain_loss(oracle(views)).backward()
        optimizer.step()
    torch.testing.assert_close(found.logits, oracle(views[:1])[0].detach(), atol=1e-3, rtol=1e-3)
    assert (found.logits - found.zero_shot.logits).abs().max() > 0.1


@pytest.mark.parametrize("mode", slow_but([torch.inference_mode], [torch.no_grad, torch.inference_mode]))
def test_inside_the_callers_modes(mode):
    module, views = classifier("resnet18"), views_of(4)
    want = memo_predict(module, views, lr=0.1)
    with mode():
        got = memo_predict(module, views.clone(), lr=0.1)
    torch.testing.assert_close(got.logits, want.logits)
    assert not torch.allclose(want.logits, want.zero_shot.logits, atol=1e-2)
    assert not got.logits.requires_grad


def test_views_with_a_gradient_and_a_classifier_that_works_in_place():
    """Autograd refuses changes to a tensor that unbind returned."""
    module = torch.nn.Sequential(torch.nn.ReLU(inplace=True), classifier("resnet18")).eval()
    views = views_of(4).abs()
    (given,) = views[None].clone().requires_grad_().unbind()
    assert torch.equal(memo_predict(module, given, lr=0.1).logits, memo_predict(module, views, lr=0.1).logits)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
def test_other_dtypes(dtype):
    """In bfloat16 logits of about 20 are right to few times 2**-8 of that; the step moves them by much more."""
    module = copy.deepcopy(classifier("vit_b_16")).to(dtype)
    views = views_of(4, 32).to(dtype)
    found = memo_predict(module, views, lr=0.01)
    assert found.logits.dtype == torch.float32
    want = memo_predict(copy.deepcopy(module).float(), views.float(), lr=0.01)
    moved = (want.logits - want.zero_shot.logits).abs().max()
    assert moved > 2
    assert (found.logits - want.logits).abs().max() < (moved / 10 if dtype == torch.bfloat16 else 1e-4)


def test_one_value_has_no_variance():
    """Batch norms then keep the running statistics, so a batch norm of them is as if left alone."""
    module = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.BatchNorm2d(3), nn.Flatten(), nn.Linear(3, 4)).eval()
    module[1].running_mean.normal_()
    found, left = (memo_predict(module, views_of(1, 8), lr=0.5, prior=prior) for prior in (16.0, None))
    torch.testing.assert_close(found.logits, left.logits)
    assert not torch.allclose(found.logits, found.zero_shot.logits)


class Root(nn.Module):
    """Its output is finite, the gradient of a weight of 0 is not."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(3))

    def forward(self, x):
        return x.mean(dim=(2, 3)) + self.weight.abs().sqrt()


@pytest.mark.parametrize("steps", [1, 3])
def test_a_gradient_that_is_not_finite_leaves_the_classifier_as_it_was(steps):
    with pytest.warns(
        UserWarning, match="memo_predict: a loss or gradient was not finite in 1 of 1 cases; those are left unchanged"
    ):
        found = memo_predict(Root().eval(), views_of(4, 8), steps=steps)
    assert not found.tuned
    assert "not tuned" in repr(found)
    assert torch.equal(found.logits, found.zero_shot.logits)
    assert found.loss_before.isfinite(), "the loss itself was"


def test_a_loss_that_is_not_finite_leaves_the_classifier_as_it_was():
    """The plain view is fine, another has a pixel that is not finite: no step, and the plain view's own answer."""
    module, views = nn.Sequential(nn.Flatten(), nn.Linear(12, 3)).eval(), views_of(4, 2)
    views[2, 0, 0, 0] = torch.nan
    with pytest.warns(UserWarning, match="memo_predict: a loss or gradient was not finite in 1 of 1 cases"):
        found = memo_predict(module, views)
    assert not found.tuned
    assert torch.equal(found.logits, found.zero_shot.logits)
    assert found.to_dict()["loss_before"] is None
    with torch.no_grad():
        torch.testing.assert_close(found.logits, module(views[:1])[0])


class Returns(nn.Module):
    def __init__(self, make):
        super().__init__()
        self.weight, self.make = nn.Parameter(torch.ones(())), make

    def forward(self, x):
        return self.make(self.weight * x)


@pytest.mark.usefixtures("no_shape_checks")
@pytest.mark.parametrize(("module", "views", "options", "kind", "message"), [
    (lambda: Returns(lambda x: {"logits": x}), None, {}, ValueError, r"return float logits \(1, K\) .* but it returned dict"),
    (lambda: Returns(lambda x: x), None, {}, ValueError, r"returned torch.float32 of shape \(1, 3, 8, 8\); wrap it"),
    (lambda: Returns(lambda x: x.mean((1, 2, 3))), None, {}, ValueError, r"returned torch.float32 of shape \(1,\)"),
    (lambda: Returns(lambda x: x.mean((2, 3)).long()), None, {}, ValueError, "returned torch.int64 of shape"),
    (lambda: Tied().train(), None, {}, ValueError, "must be in eval mode, but the module itself is in train mode; call"),
    (lambda: nn.Sequential(nn.Flatten(), nn.Dropout(), nn.Linear(192, 3).eval()).train(False).append(nn.ReLU()), None, {},
     ValueError, "must be in eval mode, but 3 is in train mode"),
    (lambda: Tied().eval(), torch.ones(0, 3, 8, 8), {}, ValueError, r"one or more, but got .* of shape \(0, 3, 8, 8\)"),
    (lambda: Tied().eval(), torch.ones(3, 8, 8), {}, ValueError, r"of shape \(N, 3, H, W\), .* but got .* \(3, 8, 8\)"),
    (lambda: Tied().eval(), torch.ones(2, 3, 8, 8, dtype=torch.uint8), {}, ValueError, "normalized floats .* torch.uint8"),
    (lambda: nn.Flatten().eval(), None, {}, ValueError, "Flatten has no parameters, so there is nothing to adapt"),
    (lambda: (lambda x: x), None, {}, TypeError, "must be a torch module from pixels to logits, but got function"),
    (lambda: Tied().eval(), torch.ones(2, 3, 2, 2), {"names": ["a"]}, ValueError, "there are 1 names and 12 logits"),
    (lambda: Tied().eval(), None, {"steps": -1}, ValueError, "steps must be 0 or more"),
    (lambda: Tied().eval(), None, {"chunk": 0}, ValueError, "chunk at least 1"),
    (lambda: Tied().eval(), None, {"prior": -1.0}, ValueError, "prior 0 or more, but got 1, 8 and -1.0"),
    (lambda: Tied().eval(), torch.ones(2, 3, 2, 2), {"fraction": 0.0}, ValueError, "fraction must be above 0"),
    (lambda: nn.Sequential(nn.BatchNorm2d(3, track_running_stats=False), nn.Flatten()).eval(), None, {}, ValueError,
     "has no running statistics"),
    (lambda: (lambda norm: nn.Sequential(norm, norm, nn.Flatten()).eval())(nn.BatchNorm2d(3)), None, {}, ValueError,
     "a batch norm of the classifier is used twice in one pass"),
])  # fmt: skip
def test_bad_input(module, views, options, kind, message):
    module = module()
    if isinstance(module, Returns):
        module.eval()
    with pytest.raises(kind, match=message):
        memo_predict(module, torch.ones(2, 3, 8, 8) if views is None else views, **options)


@pytest.mark.usefixtures("no_shape_checks")
def test_bad_keywords():
    with pytest.raises(ValueError, match="n_views must be an int of at least 1, but got 0"):
        memo_classify(Tied().eval(), torch.rand(3, 8, 8), n_views=0)
    with pytest.raises(TypeError, match="memo_classify: unknown keyword 'n_view'; did you mean 'n_views'"):
        memo_classify(Tied().eval(), torch.rand(3, 8, 8), n_view=0)
