"""AugMix's parameters: their distribution, what their number does not change, and which severities are refused."""

import numpy as np
import pytest
import scipy.stats
import torch
from support.pictures import generator

import tpt_lib.views.augmix_parameters
from tpt_lib.views import AugMix, sample_augmix
from tpt_lib.views.augmix_parameters import steps_of


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


@pytest.mark.parametrize(("options", "severity"), [({}, 1), ({"severity": 3}, 3)], ids=["default", "3"])
def test_convention_amounts_of_augmix(options, severity):
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
    params = sample_augmix(8000, (224, 64), generator=generator(), **options)
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


@pytest.mark.parametrize("severity", [0.1, 0, 10.1])
def test_severity_that_cannot_be_used(severity):
    with pytest.raises(ValueError, match=f"augmix: severity must be above 0.1 and at most 10, but got {severity}"):
        sample_augmix(2, (8, 8), generator=generator(), severity=severity)


def test_severity_has_an_inclusive_upper_bound():
    amount = sample_augmix(4000, (30, 30), generator=generator(), severity=10)
    assert amount.amount[amount.operation == AugMix.NAMES.index("rotate")].abs().max() == 29


def test_convention_parameters_of_given_draws(monkeypatch):
    """The columns of the draws: plain, weights, lengths of the chains, operations, levels, signs."""
    draws = torch.full((1, 34), 0.5, dtype=torch.float64)
    draws[:, 7:16] = (AugMix.NAMES.index("rotate") + 0.5) / 9
    monkeypatch.setattr(tpt_lib.views.augmix_parameters, "uniform_rows", lambda *_: draws)
    params = sample_augmix(1, (8, 8), generator=generator(), severity=10)
    assert params.operation.tolist() == [[[3, 3, -1]] * 3]
    assert params.amount.tolist() == [[[15, 15, 0]] * 3]  # 3 * (0.1 + 9.9 / 2), rounded down; a half is positive
    torch.testing.assert_close(params.weight, torch.full((1, 3), 1 / 3, dtype=torch.float64))
    assert params.plain.tolist() == [0.5]


def test_shears_are_computed_in_float64(monkeypatch):
    draws = torch.full((1, 34), 0.3, dtype=torch.float64)
    draws[:, 7:16] = (AugMix.NAMES.index("shear_x") + 0.5) / 9
    monkeypatch.setattr(tpt_lib.views.augmix_parameters, "uniform_rows", lambda *_: draws)
    found = sample_augmix(1, (8, 8), generator=generator(), severity=10).amount
    assert found[0, 0, 0].item() == pytest.approx(-0.03 * (0.1 + 9.9 * 0.3), rel=1e-14)


def test_steps_are_the_operations_of_chains_with_amounts_in_float64():
    rotate, shear = AugMix.NAMES.index("rotate"), AugMix.NAMES.index("shear_x")
    operation = torch.tensor([[rotate, shear, rotate], [-1, rotate, shear]])[..., None].expand(2, 3, 3)
    amount = torch.tensor([[1.0, 0.25, -2.0], [0.0, 0.0, 0.5]])[..., None].expand(2, 3, 3)
    params = AugMix(operation, amount, torch.full((2, 3), 1 / 3), torch.zeros(2))
    for step in range(3):
        found = {name: (chains.tolist(), amount) for name, chains, amount in steps_of(params, step)}
        assert tuple(found) == AugMix.NAMES
        assert all(amount.dtype == torch.float64 for _, amount in found.values())
        used = {name: (chains, amount.tolist()) for name, (chains, amount) in found.items() if chains}
        assert used == {"rotate": ([0, 2], [1, -2]), "shear_x": ([1, 5], [0.25, 0.5])}
