"""The equations against their literal form in float64, the laws they obey, and their edges."""

import math

import hypothesis
import hypothesis.strategies as st
import pytest
import torch
from hypothesis.extra import numpy as arrays

import tpt_lib

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
    (lambda: tpt_lib.marginal_entropy(torch.zeros(0, 3)), r"none of them empty, but got torch.float32 of shape \(0, 3\)"),
    (lambda: tpt_lib.entropy(torch.zeros(3, 0)), r"entropy: logits must be floats of shape \(…, K\)"),
    (lambda: tpt_lib.entropy(torch.zeros(3, dtype=torch.int64)), "but got torch.int64"),
    (lambda: tpt_lib.select_confident(torch.zeros(3, 2), fraction=0), "above 0 and at most 1, but got 0"),
    (lambda: tpt_lib.select_confident(torch.zeros(3, 2), fraction=1.5), "above 0 and at most 1, but got 1.5"),
])  # fmt: skip
def test_bad_input(call, message):
    with pytest.raises(ValueError, match=message):
        call()
