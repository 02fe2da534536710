"""Contexts that do not come from words."""

import math

import numpy as np
import pytest
import torch

import tpt_lib


def test_gaussian_context(model):
    drawn = tpt_lib.gaussian_context(model, 4000, sigma=0.02, seed=1)
    assert abs(drawn.std().item() - 0.02) < 2e-4
    assert abs(drawn.mean().item()) < 3e-4
    assert torch.equal(drawn, tpt_lib.gaussian_context(model, 4000, seed=1))
    assert not torch.equal(drawn, tpt_lib.gaussian_context(model, 4000, seed=2))
    assert tpt_lib.gaussian_context(model, 4, n_classes=3).shape == (3, 4, 32)


def test_a_context_may_be_one_token(model):
    assert tpt_lib.gaussian_context(model, 1).shape == (1, 32)


def test_bad_length(model):
    with pytest.raises(ValueError, match="gaussian_context: length must be an int of at least 1, but got 0"):
        tpt_lib.gaussian_context(model, 0)


@torch.no_grad()
def test_the_meta_network_is_two_layers():
    first, second = torch.nn.Linear(16, 3), torch.nn.Linear(3, 32)
    net = tpt_lib.prompts.MetaNet(first.weight, first.bias, second.weight, second.bias)
    features = torch.randn(2, 5, 16)
    torch.testing.assert_close(net(features), second(first(features).relu()))
    moved = net.to(torch.device("meta"))
    assert [part.device.type for part in moved.parts] == ["meta"] * 4
    assert [part.shape for part in moved.parts] == [part.shape for part in net.parts]


@pytest.mark.usefixtures("no_shape_checks")  # they refuse numpy's ints
def test_the_draw_is_that_of_torch(model):
    drawn = torch.randn(4, 32, generator=torch.Generator().manual_seed(0))
    assert torch.equal(tpt_lib.gaussian_context(model, 4), 0.02 * drawn)
    assert torch.equal(tpt_lib.gaussian_context(model, np.int64(4), sigma=0.0, seed=np.int64(3)), 0 * drawn)


@pytest.mark.parametrize("sigma", [-0.1, math.inf, math.nan])
def test_bad_sigma(model, sigma):
    with pytest.raises(ValueError, match="gaussian_context: sigma must be a finite number of at least 0, but got"):
        tpt_lib.gaussian_context(model, 4, sigma=sigma)
