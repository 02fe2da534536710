"""Entropy minimization over weights: which weights are free, what a graph holds, what is left when it fails."""

import copy

import pytest
import torch
from oracles.memo import plain_memo
from support.cases import model_of
from support.classifiers import Tied, classifier, close, graph_size, views_of
from torch import nn

from tpt_lib import class_prompts, memo_clip_predict
from tpt_lib.methods import memo_predict
from tpt_lib.methods.tune_weights import FreeWeights


def test_frozen_weights_are_adapted_too():
    module = copy.deepcopy(classifier("vit_b_16"))
    views = views_of(4, 32)
    want = memo_predict(module, views, lr=0.1)
    assert torch.equal(memo_predict(module.requires_grad_(False), views, lr=0.1).logits, want.logits)
    assert not torch.allclose(want.logits, want.zero_shot.logits, atol=0.1)


def test_a_weight_that_is_not_used_may_be_anything():
    """Modules leave memory as it was where nothing reads it, as open_clip's CoCa does."""
    module, views = nn.Sequential(nn.Flatten(), nn.Linear(12, 3)).eval(), views_of(4, 2)
    want = memo_predict(module, views, lr=0.1)
    module.register_parameter("unused", nn.Parameter(torch.full((2,), torch.nan)))
    found = memo_predict(module, views, lr=0.1)
    assert found.tuned
    assert torch.equal(found.logits, want.logits)


def test_tied_weights_stay_tied():
    module, views = Tied().eval(), views_of(4, 2)
    want, _, _ = plain_memo(module, views, lr=0.5, prior=None)
    found = memo_predict(module, views, lr=0.5)
    close(found.logits, want, found.zero_shot.logits)
    free = FreeWeights.of(list(module.named_parameters(remove_duplicate=False)))
    assert len(free.leaves) == 3
    assert free.named["first.weight"] is free.named["second.weight"]


class Counting(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(12, 3)
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x):
        self.calls += 1
        return self.linear(x.flatten(1))


def test_buffers_that_a_forward_writes_to_stay_as_they_were():
    module = Counting().eval()
    assert memo_predict(module, views_of(4, 2), lr=0.1).tuned
    assert module.calls == 0
    module(views_of(4, 2))
    assert module.calls == 1


def test_a_compiled_classifier():
    module, views = classifier("vit_b_16"), views_of(4, 32)
    compiled = torch.compile(module, backend="eager")
    torch.testing.assert_close(memo_predict(compiled, views, lr=0.1).logits, memo_predict(module, views, lr=0.1).logits)


def test_memory_does_not_grow_with_the_graph_of_all_views():
    module = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(1568, 3)).eval()
    size = {chunk: graph_size(lambda: memo_predict(module, views_of(32, 16), chunk=chunk)) for chunk in (2, 8, 32)}  # noqa: B023
    assert size[32] > 3 * size[8] > 6 * size[2], size


@pytest.mark.parametrize("group", ["image", "all"])
def test_memory_of_groups(group):
    model, views = model_of(), views_of(32, 32)
    prompts = class_prompts(model, ["cat", "dog"])
    size = {
        chunk: graph_size(lambda: memo_clip_predict(model, prompts, views, group=group, chunk=chunk))  # noqa: B023
        for chunk in (2, 32)
    }
    assert size[32] > 2 * size[2], size
