"""The structural copy: same values and weights, replaced parts, and nothing of the original changed."""

import copy
from functools import partial
from types import MethodType

import torch
from support.text_cases import relative
from support.zoo import open_clip_model
from torch import nn

import tpt_lib
from tpt_lib.models.structural_copy import mirror

TEXTS = ["a photo of a cat.", "a photo of a red panda.", "kite"]


def text_features(model):
    ids = model.tokenize(TEXTS)
    return model.encode_embeddings(model.embed_tokens(ids), ids)


def test_weights_are_shared_and_detached():
    module = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3)).eval()
    made = mirror(module, {})
    x = torch.randn(2, 3)
    assert torch.equal(made(x), module(x))
    assert not made(x).requires_grad
    with torch.no_grad():
        module[0].weight.mul_(2)
    assert torch.equal(made(x), module(x))


def test_what_is_set_on_the_copy_does_not_reach_the_original():
    module = nn.Sequential(nn.Linear(3, 3))
    made = mirror(module, {})
    made[0].bias = nn.Parameter(torch.ones(3))
    made[0].register_forward_hook(lambda *_: None)
    made.append(nn.ReLU())
    assert len(module) == 1
    assert not module[0]._forward_hooks
    assert not torch.equal(module[0].bias, torch.ones(3))


def test_a_module_used_twice_stays_one():
    shared = nn.Linear(3, 3)
    made = mirror(nn.Sequential(shared, nn.ReLU(), shared), {})
    assert made[0] is made[2]
    assert made[0] is not shared


def test_replaced_parts_are_used_as_they_are():
    module = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
    other = nn.Identity()
    made = mirror(module, {module[0]: other})
    assert made[0] is other
    x = torch.randn(2, 3)
    assert torch.equal(made(x), module[1](x))


class Scaled(nn.Module):
    factor = 2

    def forward(self, x):
        return x * self.factor


def times(module, x):
    return x * module.factor * 3


def test_methods_set_on_the_instance_see_the_copy():
    module = nn.Sequential(Scaled(), Scaled())
    module[0].forward = MethodType(times, module[0])
    module[1].forward = partial(times, module[1])
    made = mirror(module, {})
    for part in made:
        part.factor = 5
    assert made(torch.ones(1)) == 15 * 15
    assert module(torch.ones(1)) == 6 * 6


def test_compiled_modules_are_looked_through():
    module = open_clip_model()
    want = text_features(tpt_lib.wrap(module))
    whole = torch.compile(copy.deepcopy(module), backend="eager")
    part = copy.deepcopy(module)
    part.transformer = torch.compile(part.transformer, backend="eager")
    part.ln_final.compile(backend="eager")
    for compiled in (whole, part):
        torch.testing.assert_close(text_features(tpt_lib.wrap(compiled)), want)


def test_a_model_made_in_inference_mode():
    with torch.inference_mode():
        module = open_clip_model()
    gradients = []
    for each in (module, open_clip_model()):
        model = tpt_lib.wrap(each)
        ids = model.tokenize(TEXTS)
        embeddings = model.embed_tokens(ids).clone().requires_grad_()
        model.encode_embeddings(embeddings, ids).square().sum().backward()
        gradients.append(embeddings.grad)
    assert gradients[0].norm() > 0
    assert relative(*gradients) <= 1e-5
