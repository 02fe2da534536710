"""AugMix: parity with the released code's PIL loop, and the mixture."""

import dataclasses

import pytest
import torch
from oracles.augmix import pil_augmix
from support.marking import slow_but
from support.pictures import as_pil, generator

import tpt_lib.views.augmix
from tpt_lib.views import AugMix, apply_augmix, sample_augmix


def released(views, params):
    rows = zip(views, *vars(params).values(), strict=True)
    return torch.stack([pil_augmix(as_pil(view), *row) for view, *row in rows])


@pytest.mark.parametrize("severity", slow_but([3], [1, 3]))
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
