"""AugMix: parity with the released code's PIL loop, the distribution of its parameters, and the mixture."""

import dataclasses

import numpy as np
import pytest
import scipy.stats
import torch
from oracles.augmix import pil_augmix
from support.pictures import as_pil, generator

import tpt_lib.views.augmix
from tpt_lib.views import AugMix, apply_augmix, sample_augmix


def released(views, params):
    rows = zip(views, *vars(params).values(), strict=True)
    return torch.stack([pil_augmix(as_pil(view), *row) for view, *row in rows])


@pytest.mark.parametrize("severity", [1, 3])
def test_augmix_is_the_released_codes(severity, cut):
    params = sample_augmix(24, (224, 224), generator=generator(1), severity=severity)
    apart = (apply_augmix(cut[12:36], params) - released(cut[12:36], params)).abs() * 255
    assert apart.mean() <= 1e-3
    assert (
        apart > 1e-2
    ).float().mean() <= 2e-3  # a level of a shear or rotation, which operations after it may amplify
    interpolating = torch.tensor([AugMix.NAMES.index(name) for name in ("rotate", "shear_x", "shear_y")])
    left_out = torch.isin(params.operation, interpolating)
    exact = dataclasses.replace(
        params,
        operation=params.operation.masked_fill(left_out, -1),
        amount=params.amount.masked_fill(left_out, 0),
    )
    assert ((apply_augmix(cut[12:36], exact) - released(cut[12:36], exact)).abs() * 255).max() <= 1e-3


@pytest.mark.statistical
def test_augmix_parameters_are_distributed_as_numpys():
    params = sample_augmix(4000, (224, 224), generator=generator())
    rng = np.random.default_rng(0)
    weights, beta = rng.dirichlet([1.0] * 3, 4000), rng.beta(1.0, 1.0, 4000)
    for i in range(3):
        assert scipy.stats.ks_2samp(params.weight[:, i].numpy(), weights[:, i]).pvalue > 0.001
        assert scipy.stats.ks_2samp(params.weight[:, i].numpy(), rng.dirichlet([1.5] * 3, 4000)[:, i]).pvalue < 0.001
    assert scipy.stats.ks_2samp(params.plain.numpy(), beta).pvalue > 0.001
    assert scipy.stats.ks_2samp(params.plain.numpy(), rng.beta(1.2, 1.0, 4000)).pvalue < 0.001
    torch.testing.assert_close(params.weight.sum(dim=1), torch.ones(4000, dtype=torch.float64))
    depth = (params.operation >= 0).sum(dim=2).flatten()
    assert scipy.stats.chisquare(depth.bincount(minlength=4)[1:].numpy()).pvalue > 0.001
    used = params.operation[params.operation >= 0]
    assert scipy.stats.chisquare(used.bincount(minlength=9).numpy()).pvalue > 0.001


@pytest.mark.parametrize("severity", [1, 3])
def test_convention_amounts_of_augmix(severity):
    rng = np.random.default_rng(0)
    u, sign = rng.uniform(0.1, severity, 20000), np.where(rng.uniform(size=20000) > 0.5, -1, 1)
    want = {
        "autocontrast": np.ones(20000),
        "equalize": np.ones(20000),
        "posterize": 4 - (u * 4 / 10).astype(int),
        "rotate": sign * (u * 30 / 10).astype(int),
        "solarize": 256 - (u * 256 / 10).astype(int),
        "shear_x": sign * u * 0.3 / 10,
        "shear_y": sign * u * 0.3 / 10,
        "translate_x": sign * (u * (64 / 3) / 10).astype(int),
        "translate_y": sign * (u * (224 / 3) / 10).astype(int),
    }
    assert tuple(want) == AugMix.NAMES
    params = sample_augmix(8000, (224, 64), generator=generator(), severity=severity)
    for kind, name in enumerate(AugMix.NAMES):
        got = params.amount[params.operation == kind].numpy()
        if name.startswith("shear"):
            assert scipy.stats.ks_2samp(got, want[name]).pvalue > 0.001
        else:
            values = np.union1d(got, want[name])
            table = [[(sample == v).sum() for v in values] for sample in (got, want[name])]
            assert len(values) == 1 or scipy.stats.chi2_contingency(table).pvalue > 0.001, name
    assert (params.amount[params.operation < 0] == 0).all()


def test_the_first_parameters_and_the_next_draws_do_not_depend_on_the_number():
    def drawn(n):
        stream = generator(5)
        return [*vars(sample_augmix(n, (24, 32), generator=stream)).values(), torch.rand(4, generator=stream)]

    *want, after = drawn(64)
    for n in (0, 1, 2, 7, 63):
        *got, next_draws = drawn(n)
        assert all(some.equal(every[:n]) for some, every in zip(got, want, strict=True))
        assert next_draws.equal(after)


def test_convention_augmix_mixes_after_normalization():
    views = torch.randint(0, 256, (1, 3, 4, 4), dtype=torch.uint8)
    solarized = AugMix(
        torch.tensor([[[4, -1, -1], [-1, -1, -1], [4, 4, -1]]]),
        torch.tensor([[[128.0, 0, 0], [0, 0, 0], [128, 128, 0]]]),
        torch.tensor([[0.2, 0.3, 0.5]]),
        torch.tensor([0.25]),
    )
    inverted = torch.where(views < 128, views, 255 - views)
    twice = torch.where(inverted < 128, inverted, 255 - inverted)
    want = 0.25 * views + 0.75 * (0.2 * inverted + 0.3 * views + 0.5 * twice)
    torch.testing.assert_close(apply_augmix(views, solarized), want / 255)


@pytest.mark.parametrize("batch_size", [1, 1000])
def test_the_batch_size_of_an_operation_does_not_matter(batch_size, cut, monkeypatch):
    params = sample_augmix(len(cut), (224, 224), generator=generator())
    want = apply_augmix(cut, params)
    monkeypatch.setattr(tpt_lib.views.augmix, "IN_CACHE", batch_size)
    assert apply_augmix(cut, params).equal(want)


def test_parameters_for_other_views_are_refused():
    params = sample_augmix(3, (8, 8), generator=generator())
    with pytest.raises(ValueError, match="apply_augmix: there are 2 views, but parameters for 3"):
        apply_augmix(torch.zeros(2, 3, 8, 8, dtype=torch.uint8), params)


@pytest.mark.parametrize("severity", [0.1, 0, 10.1])
def test_severity_that_cannot_be_used(severity):
    with pytest.raises(ValueError, match=f"augmix: severity must be above 0.1 and at most 10, but got {severity}"):
        sample_augmix(2, (8, 8), generator=generator(), severity=severity)


def test_severity_has_an_inclusive_upper_bound():
    amount = sample_augmix(4000, (30, 30), generator=generator(), severity=10)
    assert amount.amount[amount.operation == AugMix.NAMES.index("rotate")].abs().max() == 29


def test_views_and_parameters_are_not_written_to(cut):
    params = sample_augmix(8, (224, 224), generator=generator())
    views, before = cut[:8].clone(), [value.clone() for value in vars(params).values()]
    apply_augmix(views, params)
    assert views.equal(cut[:8])
    assert all(a.equal(b) for a, b in zip(before, vars(params).values(), strict=True))


def test_views_are_float32_whatever_torchs_default_is(cut):
    params = sample_augmix(4, (224, 224), generator=generator())
    want = apply_augmix(cut[:4], params)
    torch.set_default_dtype(torch.float64)
    try:
        got = apply_augmix(cut[:4], params)
    finally:
        torch.set_default_dtype(torch.float32)
    assert got.dtype == torch.float32
    assert got.equal(want)
