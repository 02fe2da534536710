"""The full-length engine against the plain program, forward and backward, on every model of the zoo and on none of them."""

import functools
import types

import pytest
import torch
import torch.nn.functional as F
from oracles.tpt import float64
from support.cases import largest
from support.letters import Letters
from support.marking import slow_but
from support.odd_tower import Odd
from support.text_cases import (
    NAMES,
    WORDINGS,
    assert_same,
    check_features,
    check_five_steps,
    example,
    features_and_gradient,
    gradients,
    initial_of,
    plain_photo,
)
from support.zoo import ZOO, open_clip_model

import tpt_lib
from tpt_lib import class_prompts
from tpt_lib.text import text_engine

QUICK = ["open_clip-vit", "open_clip-not-causal", "open_clip-siglip", "open_clip-coca", "transformers-clip"]


@pytest.mark.parametrize("where", WORDINGS)
@pytest.mark.parametrize("name", slow_but(QUICK, list(ZOO)))
def test_features_logits_and_gradients_are_the_plain_ones(name, where):
    check_features(example(name, where), "full_length")


@pytest.mark.parametrize("where", WORDINGS)
@pytest.mark.parametrize("name", ZOO)
@pytest.mark.slow
def test_five_steps_of_tuning_are_the_plain_ones(name, where):
    check_five_steps(example(name, where), "full_length")


@pytest.mark.parametrize("bind", [types.MethodType, functools.partial])
def test_an_encode_text_put_on_the_instance_sees_the_context(bind):
    module = open_clip_model()
    module.encode_text = bind(Odd.encode_text, module)
    model = tpt_lib.wrap(module)
    prompts = class_prompts(model, NAMES)
    assert_same(features_and_gradient(model, prompts), plain_photo(float64(module), model, prompts))
    assert text_engine(model, prompts).startswith("full_length")


def test_a_model_that_is_no_torch_module():
    model, names = Letters(), ["cat", "dog", "bee"]
    assert isinstance(model, tpt_lib.ClipLike)
    prompts = class_prompts(model, names, template="my {}")
    assert text_engine(model, prompts) == "full_length: the model does not open its text tower (causal_tower)"
    context = prompts.context.double().requires_grad_()
    ids = model.tokenize([f"my {name}" for name in names])

    def plain():
        rows = [model.table[ids[:, :1]].double(), context.expand(3, 2, 6), model.table[ids[:, 3:]]]
        embedded = torch.cat(rows, dim=1)
        features = F.normalize((embedded.tanh() * model.weights * (ids != 0)[..., None]).sum(dim=1), dim=-1)
        return features.detach(), gradients(features, context)[0]

    want = plain()
    assert_same(features_and_gradient(model, prompts), want)
    assert_same(features_and_gradient(model, prompts, chunk=1), want)
    model.table += 1
    changed = initial_of(model, prompts)
    upstream = torch.randn(3, 6, generator=torch.Generator().manual_seed(0))
    assert_same((changed.features, *changed.gradients(upstream)), plain())
    assert largest(changed.features, want[0]) > 0.01
