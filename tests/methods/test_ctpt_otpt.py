"""C-TPT and O-TPT against plain programs: their regularizers, one step and several, and O-TPT's memory."""

import pytest
import torch
import torch.nn.functional as F
from oracles.followers import confident, householder_penalty, plain_dispersion, plain_tuning
from oracles.tpt import plain_loss
from support.prompt_tuning import plain_case
from torch.utils._python_dispatch import TorchDispatchMode

from tpt_lib import tpt_predict
from tpt_lib.methods import ctpt_predict, otpt_predict, text_dispersion, text_overlap

METHODS = {
    "ctpt": (ctpt_predict, lambda text, weight: -weight * plain_dispersion(text), (50.0, 20.0)),
    "otpt": (otpt_predict, lambda text, weight: weight * householder_penalty(text), (18.0, 2.0)),
}


@pytest.mark.parametrize("steps", [1, 3])
@pytest.mark.parametrize("which", METHODS)
def test_as_the_plain_program(which, steps):
    predict, penalty, (weight, other) = METHODS[which]
    case = plain_case()
    for settings, used in (({}, weight), ({"weight": other, "fraction": 0.3}, other)):
        found = predict(case.model, case.prompts, case.views, steps=steps, **settings)
        kept = confident(case.logits(case.text), settings.get("fraction", 0.1))

        def loss(text, kept=kept, used=used):
            return plain_loss(case.logits(text)[kept]) + penalty(text, used)

        text, _ = plain_tuning(case.text_of, case.context, loss, steps, 5e-3, 0.01)
        torch.testing.assert_close(found.logits.double(), case.logits(text)[0], atol=2e-3, rtol=0)
        assert set(found.selected.tolist()) == set(kept.tolist())
        torch.testing.assert_close(found.loss_before.double(), loss(case.text), atol=1e-4, rtol=1e-5)


@pytest.mark.parametrize("which", METHODS)
def test_without_weight_it_is_tpt(which):
    case = plain_case()
    found = METHODS[which][0](case.model, case.prompts, case.views, weight=0.0)
    torch.testing.assert_close(found.logits, tpt_predict(case.model, case.prompts, case.views).logits)


@pytest.mark.parametrize(("ours", "plain"), [(text_dispersion, plain_dispersion), (text_overlap, householder_penalty)])
def test_the_regularizers_and_their_gradients(ours, plain):
    """O-TPT's is the mean norm of rows: reflections keep it, in value and in gradient."""
    text = F.normalize(torch.randn(7, 16).double(), dim=-1).requires_grad_()
    found, want = ours(text), plain(text)
    torch.testing.assert_close(found, want)
    torch.testing.assert_close(*(torch.autograd.grad(value, text)[0] for value in (found, want)))
    batch = text.detach().reshape(1, 7, 16).expand(3, -1, -1)
    torch.testing.assert_close(ours(batch), want.detach().expand(3))


@pytest.mark.parametrize("ours", [text_dispersion, text_overlap])
def test_one_class_has_a_finite_gradient(ours):
    text = F.normalize(torch.randn(1, 8), dim=-1).requires_grad_()
    assert torch.autograd.grad(ours(text), text)[0].isfinite().all()


class Allocated(TorchDispatchMode):
    """Sums the bytes of all results, which bounds the peak from above."""

    total = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        found = function(*args, **(kwargs or {}))
        for tensor in found if isinstance(found, tuple | list) else [found]:
            self.total += tensor.nbytes if isinstance(tensor, torch.Tensor) else 0
        return found


def test_a_thousand_classes_take_less_than_100_mb():
    """The released code makes a tensor of K x K x K numbers, 4 GB."""
    text = F.normalize(torch.randn(1000, 512), dim=-1).requires_grad_()
    with Allocated() as allocated:
        text_overlap(text).backward()
    assert 8e6 < allocated.total < 100e6
