"""What is tuned of each image, and the learning rate of its optimizers."""

import functools

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from support.cases import model_of

from tpt_lib import class_prompts, encode_prompts, tpt_predict, tune_prompt
from tpt_lib.methods import ctpt_predict, otpt_predict, rtpt_predict, tps_predict
from tpt_lib.tuning.free_tokens import FreeTokens

RATE = 2**-8  # all of these types have it exactly
NUMBERS = [np.float32(RATE), np.float64(RATE), torch.tensor(RATE), torch.tensor([RATE]).double()]
pytestmark = pytest.mark.usefixtures("no_shape_checks")  # which take floats alone for a rate


def case():
    model = model_of("open_clip-vit")
    prompts = class_prompts(model, ["cat", "red panda", "dog"])
    draw = torch.Generator().manual_seed(0)
    features = torch.randn(2, 8, encode_prompts(model, prompts).shape[-1], generator=draw)
    return model, prompts, F.normalize(features, dim=-1)


def one_each(tokens, lr):
    return torch.optim.AdamW(tokens, lr=lr)


@pytest.mark.parametrize("number", NUMBERS, ids=repr)
@pytest.mark.parametrize("optimizer", [torch.optim.AdamW, torch.optim.SGD, one_each], ids=lambda o: o.__name__)
def test_numbers_of_numpy_and_torch_are_learning_rates(optimizer, number):
    model, prompts, features = case()
    got, want = (
        tune_prompt(model, prompts, features, optimizer=optimizer, lr=lr, steps=2).context for lr in (number, RATE)
    )
    torch.testing.assert_close(got, want, rtol=0, atol=1e-7)
    assert not want.equal(prompts.context.expand_as(want))


@pytest.mark.parametrize("predict", [tpt_predict, ctpt_predict, otpt_predict, rtpt_predict, tps_predict])
def test_methods_take_them_too(predict):
    model, prompts, features = case()
    want = predict(model, prompts, features, lr=RATE).logits
    for number in NUMBERS:
        torch.testing.assert_close(predict(model, prompts, features, lr=number).logits, want, rtol=0, atol=1e-4)


@pytest.mark.parametrize("lr", ["0.005", None, [0.005], 1j], ids=repr)
def test_what_is_no_learning_rate(lr):
    model, prompts, features = case()
    with pytest.raises(TypeError, match=r"tune_prompt: lr must be a number, but got "):
        tune_prompt(model, prompts, features, lr=lr)


def tokens_of(optimizer, lr=1.0):
    start = [torch.arange(12.0).reshape(2, 3, 2).requires_grad_(), torch.arange(8.0).reshape(2, 1, 4)]
    return [token.detach().clone() for token in start], FreeTokens.of(start, optimizer, lr)


@pytest.mark.parametrize(("optimizer", "stacked"), [
    (torch.optim.AdamW, True),
    (functools.partial(functools.partial(torch.optim.SGD, momentum=0.5)), True),
    (torch.optim.Adafactor, False),
    (one_each, False),
])  # fmt: skip
def test_only_elementwise_optimizers_step_all_images_together(optimizer, stacked):
    start, tokens = tokens_of(optimizer)
    assert tokens.stacked == stacked
    assert [len(own) for own in tokens.leaves] == [2] * (1 if stacked else 2)
    assert len(tokens.optimizers) == len(tokens.leaves) == len(tokens.before)
    assert all(leaf.is_leaf and leaf.requires_grad for own in tokens.leaves for leaf in own)
    assert all(value.requires_grad for value in tokens.values)
    assert all(torch.equal(value, token) for value, token in zip(tokens.values, start, strict=True))


@pytest.mark.parametrize("optimizer", [torch.optim.SGD, lambda tokens, lr: torch.optim.SGD(tokens, lr=lr)])
def test_a_step_moves_the_tokens_and_not_those_they_start_from(optimizer):
    start, tokens = tokens_of(optimizer)
    gradients = [torch.ones(2, 3, 2), 2 * torch.ones(2, 1, 4)]
    for own, grads, each in zip(tokens.leaves, tokens.of_each(gradients), tokens.optimizers, strict=True):
        for leaf, gradient in zip(own, grads, strict=True):
            leaf.grad = gradient
        each.step()
    found = tokens.where(torch.tensor([True, False]))
    for now, token, gradient in zip(found, start, gradients, strict=True):
        assert now.shape == token.shape
        assert torch.equal(now[0], token[0] - gradient[0])
        assert torch.equal(now[1], token[1])
