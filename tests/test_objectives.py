"""The equations against their literal form in float64, the laws they obey, and their edges."""

import math

import hypothesis
import hypothesis.strategies as st
import pytest
import torch
from hypothesis.extra import numpy as arrays
from oracles import followers
from oracles import tpt as oracle
from support.cases import model_of

import tpt_lib
from tpt_lib import select_confident
from tpt_lib.methods import mean_entropy, select_similar, weighted_entropy
from tpt_lib.objectives import marginal_entropy_gradient

INF = torch.inf


def plain_entropy(p):
    return -sum(float(x) * math.log(float(x)) for x in p if x > 0)


logits = arrays.arrays(
    "float32", st.tuples(st.integers(1, 9), st.integers(1, 7)), elements=st.floats(-60, 60, width=32)
).map(torch.from_numpy)


@hypothesis.given(logits)
def test_entropies_are_the_equations(x):
    p = x.double().softmax(dim=-1)
    torch.testing.assert_close(
        tpt_lib.entropy(x), torch.tensor([plain_entropy(row) for row in p]), atol=2e-6, rtol=1e-5
    )
    want = plain_entropy(p.mean(dim=0))
    assert tpt_lib.marginal_entropy(x).item() == pytest.approx(want, abs=2e-6, rel=1e-5)


@hypothesis.given(logits, st.randoms(use_true_random=False))
def test_laws(x, random):
    n, k = x.shape
    h = tpt_lib.marginal_entropy(x)
    assert -1e-6 <= h <= math.log(k) + 1e-5
    assert tpt_lib.entropy(x).mean() <= h + 1e-5, "entropy is concave"
    order = random.sample(range(n), n)
    torch.testing.assert_close(tpt_lib.marginal_entropy(x[order]), h)
    torch.testing.assert_close(tpt_lib.marginal_entropy(x + 3.0), h, atol=1e-5, rtol=1e-5)
    same = x[:1].expand(5, k)
    torch.testing.assert_close(tpt_lib.marginal_entropy(same), tpt_lib.entropy(x[0]), atol=1e-5, rtol=1e-5)


@hypothesis.given(logits, st.floats(0.01, 1.0))
def test_selection_is_of_the_lowest_entropies(x, fraction):
    kept = tpt_lib.select_confident(x, fraction=fraction)
    assert len(kept) == max(1, int(fraction * len(x)))
    by_hand = sorted(range(len(x)), key=lambda i: (tpt_lib.entropy(x)[i].item(), i))
    assert kept.tolist() == by_hand[: len(kept)]
    plain = torch.tensor([plain_entropy(row) for row in x.double().softmax(dim=-1)])
    left_out = [i for i in range(len(x)) if i not in kept.tolist()]
    assert all(plain[kept].max() <= plain[i] + 1e-5 for i in left_out)


@pytest.mark.parametrize(
    ("n", "fraction", "kept"), [(64, 0.1, 6), (9, 0.1, 1), (1, 0.1, 1), (64, 1.0, 64), (10, 0.3, 3)]
)
def test_convention_kept_views(n, fraction, kept):
    assert len(tpt_lib.select_confident(torch.randn(n, 5), fraction=fraction)) == kept


def test_convention_ties_by_index():
    assert tpt_lib.select_confident(torch.zeros(8, 3), fraction=0.5).tolist() == [0, 1, 2, 3]
    assert tpt_lib.select_confident(torch.zeros(500, 3)).tolist() == list(range(50))
    assert select_similar(torch.ones(500, 3), fraction=1.0).tolist() == list(range(400))


def test_a_view_that_is_not_a_number_is_kept_last():
    x = torch.randn(5, 3)
    x[1] = torch.nan
    assert tpt_lib.select_confident(x, fraction=1.0)[-1] == 1


def test_leading_dimensions():
    x = torch.randn(2, 3, 6, 5)
    for i in range(2):
        for j in range(3):
            torch.testing.assert_close(tpt_lib.marginal_entropy(x)[i, j], tpt_lib.marginal_entropy(x[i, j]))
            assert torch.equal(
                tpt_lib.select_confident(x, fraction=0.5)[i, j], tpt_lib.select_confident(x[i, j], fraction=0.5)
            )


@pytest.mark.parametrize("shape", [(1, 1), (1, 5), (6, 5), (2, 6, 5)])
def test_the_gradient_in_closed_form_is_that_of_autograd(shape):
    x = (10 * torch.randn(shape, generator=torch.Generator().manual_seed(0))).requires_grad_()
    (want,) = torch.autograd.grad(tpt_lib.marginal_entropy(x).sum(), x)
    torch.testing.assert_close(marginal_entropy_gradient(x.detach()), want, atol=1e-6, rtol=1e-5)


def test_one_class_has_no_entropy():
    assert tpt_lib.entropy(torch.randn(4, 1)).tolist() == [0, 0, 0, 0]
    assert tpt_lib.marginal_entropy(torch.randn(4, 1)) == pytest.approx(0, abs=1e-6)


@pytest.mark.parametrize(
    "rows", [[[1.0, -INF, 2.0], [0.5, -INF, 0.0]], [[1.0, -INF, 2.0], [-INF, 3.0, 0.0]], [[0.0, 3e4]]]
)
def test_classes_of_probability_zero(rows):
    x = torch.tensor(rows, requires_grad=True)
    p = x.detach().double().softmax(dim=-1)
    h = tpt_lib.marginal_entropy(x)
    assert h.item() == pytest.approx(plain_entropy(p.mean(dim=0)), abs=1e-6)
    h.backward()
    assert x.grad.isfinite().all()
    x.grad = None
    tpt_lib.entropy(x).sum().backward()
    assert x.grad.isfinite().all()


def test_gradients():
    x = torch.randn(4, 5, requires_grad=True)
    (gradient,) = torch.autograd.grad(tpt_lib.marginal_entropy(x), x)
    y = x.detach().double().requires_grad_()
    mean = y.softmax(dim=-1).mean(dim=0)
    (want,) = torch.autograd.grad(-(mean * mean.log()).sum(), y)
    torch.testing.assert_close(gradient, want.float(), atol=1e-6, rtol=1e-4)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_float32_inside(dtype):
    x = torch.randn(4, 5).to(dtype)
    assert tpt_lib.marginal_entropy(x).dtype == torch.float32
    torch.testing.assert_close(tpt_lib.marginal_entropy(x), tpt_lib.marginal_entropy(x.float()))


@pytest.mark.usefixtures("no_shape_checks")
@pytest.mark.parametrize(("call", "message"), [
    (lambda: tpt_lib.marginal_entropy(torch.zeros(3)), r"marginal_entropy: logits must be floats of shape \(…, N, K\)"),
    (lambda: tpt_lib.marginal_entropy(torch.zeros(0, 3)), r"with N and K at least 1, but got torch.float32 of shape \(0, 3\)"),
    (lambda: tpt_lib.entropy(torch.zeros(3, 0)), r"entropy: logits must be floats of shape \(…, K\)"),
    (lambda: tpt_lib.entropy(torch.zeros(3, dtype=torch.int64)), "but got torch.int64"),
    (lambda: tpt_lib.select_confident(torch.zeros(3, 2), fraction=0), "above 0 and at most 1, but got 0"),
    (lambda: tpt_lib.select_confident(torch.zeros(3, 2), fraction=1.5), "above 0 and at most 1, but got 1.5"),
    *((lambda f=f: f(torch.zeros(3)), rf"^{f.__name__}: logits must be floats of shape \(…, N, K\)")
      for f in (tpt_lib.marginal_entropy, tpt_lib.select_confident, mean_entropy, weighted_entropy, select_similar)),
])  # fmt: skip
def test_bad_input(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_later_objectives_are_the_plain_programs():
    logits = (3 * torch.randn(2, 9, 5).double()).requires_grad_()
    for ours, plain in (
        (mean_entropy, lambda rows: oracle.plain_entropy(rows.softmax(dim=-1)).mean()),
        (weighted_entropy, followers.plain_weighted_entropy),
    ):
        found, want = ours(logits.float()), torch.stack([plain(rows) for rows in logits])
        torch.testing.assert_close(found.double(), want, atol=1e-5, rtol=1e-5)
        gradients = (torch.autograd.grad(value.sum(), logits)[0] for value in (found, want))
        torch.testing.assert_close(*gradients, atol=1e-5, rtol=1e-4)
    assert not torch.allclose(weighted_entropy(logits.float()), weighted_entropy(logits.float(), margin=0.0))


def test_the_filter_of_difftpt_is_the_plain_program():
    logits = 20 + 3 * torch.randn(4, 65, 7)
    found = select_similar(logits)
    assert found.shape == (4, int(0.3 * (1 + int(0.8 * 64))))
    for rows, chosen in zip(logits, found, strict=True):
        assert set(chosen.tolist()) == followers.plain_filter(rows)
        assert torch.equal(select_similar(rows), chosen)
        assert set(chosen.tolist()) != set(select_confident(rows, fraction=0.3).tolist())


@pytest.mark.parametrize("number", [1, 2, 3])
def test_the_filter_with_few_views(number):
    assert len(select_similar(torch.randn(number, 4))) == 1


@pytest.mark.parametrize(("similar", "kept"), [(0.0, [0]), (0.5, [0, 1, 2]), (1.0, [0, 1, 2, 3, 4])])
def test_the_filter_keeps_the_plain_image_and_a_share_of_the_others(similar, kept):
    angles = torch.tensor([0.0, 0.1, 0.2, 0.3, 0.4])
    logits = torch.stack([angles.cos(), angles.sin()], dim=1)
    assert sorted(select_similar(logits, similar=similar, fraction=1.0).tolist()) == kept


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_the_filter_computes_in_float32(dtype):
    logits = (20 + torch.randn(65, 7)).to(dtype)
    assert select_similar(logits).equal(select_similar(logits.float()))


def test_the_filter_refuses_shares_out_of_range():
    for wrong in (-0.1, 1.1):
        with pytest.raises(ValueError, match="select_similar: similar must be from 0 to 1, but got"):
            select_similar(torch.randn(3, 4), similar=wrong)


def test_later_objectives_tune_a_prompt():
    """TTL's objective on all views, and DiffTPT's selection, as keywords of tune_prompt."""
    model, prompts = model_of(), tpt_lib.class_prompts(model_of(), ["cat", "dog", "hen"])
    views = torch.nn.functional.normalize(torch.randn(2, 20, 16), dim=-1)
    every = {"objective": weighted_entropy, "select": lambda rows: torch.arange(len(rows))}
    for options in (every, {"select": select_similar}):
        tuned = tpt_lib.tune_prompt(model, prompts, views, **options)
        assert tuned.applied.all()
        assert (tuned.losses[:, 1] < tuned.losses[:, 0]).all()
