"""Crops: parity with torchvision on photographs, the distribution of boxes, and the fallback."""

import math

import numpy as np
import pytest
import scipy.stats
import torch
import torchvision.transforms as transforms
from hypothesis import given
from hypothesis import strategies as st
from oracles.crops import pil_crops
from support.pictures import PHOTOS, difference, generator, load

import tpt_lib.views.crops
from tpt_lib.views import Crops, apply_crops, read_image, sample_crops


@pytest.mark.parametrize("name", PHOTOS)
@pytest.mark.parametrize("size", [(224, 224), (40, 64)])
def test_crops_are_torchvisions(name, size):
    image = load(name)
    crops = sample_crops(24, (image.height, image.width), generator=generator())
    assert 0 < crops.flip.sum() < 24
    apart = difference(apply_crops(read_image(image), crops, size), pil_crops(image, vars(crops).values(), size))
    assert apart.max() <= 1
    assert apart.float().mean() <= 0.05


def torchvision_boxes(n, size, scale, ratio):
    image = torch.empty(1, *size)
    rows = [transforms.RandomResizedCrop.get_params(image, scale, ratio) for _ in range(n)]
    return np.array(rows, dtype=float).T


SIZES = [(375, 500), (600, 200), (30, 47), (100, 220)]


def our_boxes(n, size, scale, ratio):
    crops = sample_crops(n, size, generator=generator(1), scale=scale, ratio=ratio)
    return np.stack([t.double().numpy() for t in (crops.top, crops.left, crops.height, crops.width)])


def p_values(a, b):
    """Test each of the four numbers of a box, its area and its shape for one distribution in both samples."""
    pairs = [*zip(a, b, strict=True), (a[2] * a[3], b[2] * b[3]), (a[3] / a[2], b[3] / b[2])]
    return [scipy.stats.ks_2samp(x, y).pvalue for x, y in pairs]


@pytest.mark.parametrize(
    "size", [pytest.param(SIZES[0]), *(pytest.param(size, marks=pytest.mark.slow) for size in SIZES[1:])]
)
@pytest.mark.parametrize(("scale", "ratio"), [((0.08, 1.0), (3 / 4, 4 / 3)), ((0.5, 0.9), (0.5, 1.0))])
@pytest.mark.statistical
def test_boxes_are_distributed_as_torchvisions(size, scale, ratio):
    assert min(p_values(our_boxes(4000, size, scale, ratio), torchvision_boxes(4000, size, scale, ratio))) > 0.001


@pytest.mark.parametrize("wrong", [{"scale": (0.12, 1.0)}, {"ratio": (3 / 4, 1.5)}])
def test_that_the_test_of_boxes_would_notice(wrong):
    right = {"scale": (0.08, 1.0), "ratio": (3 / 4, 4 / 3)}
    ours, theirs = our_boxes(4000, (375, 500), **{**right, **wrong}), torchvision_boxes(4000, (375, 500), **right)
    assert min(p_values(ours, theirs)) < 0.001


@pytest.mark.statistical
def test_half_of_the_crops_are_mirrored():
    flips = sample_crops(4000, (30, 40), generator=generator()).flip.sum().item()
    assert scipy.stats.binomtest(flips, 4000, 0.5).pvalue > 0.001


@pytest.mark.parametrize("size", [(1, 5000), (5000, 1), (10, 100), (100, 10), (1, 1)])
def test_convention_the_fallback_is_the_middle_as_in_torchvision(size):
    ours, theirs = (boxes(200, size, (0.9, 1.0), (0.8, 1.2)) for boxes in (our_boxes, torchvision_boxes))
    assert (ours == theirs).all()


@given(st.integers(1, 60), st.integers(1, 60), st.floats(0.01, 1), st.floats(0.1, 9), st.integers(0, 10**6))
def test_every_box_is_inside(height, width, share, ratio, seed):
    crops = sample_crops(9, (height, width), generator=generator(seed), scale=(share, 1.0), ratio=(ratio, ratio))
    for start, length, end in ((crops.top, crops.height, height), (crops.left, crops.width, width)):
        assert ((start >= 0) & (length >= 1) & (start + length <= end)).all()


@pytest.mark.parametrize("size", [(20, 10), (10, 20)])
def test_a_box_as_wide_as_the_image_fits_and_may_be_anywhere(size):
    crops = sample_crops(400, size, generator=generator(), scale=(0.5, 0.5), ratio=(1.0, 1.0))
    long, short = (crops.top, crops.left) if size[0] > size[1] else (crops.left, crops.top)
    assert set(crops.height.tolist()) == set(crops.width.tolist()) == {10}
    assert set(short.tolist()) == {0}
    assert set(long.tolist()) == set(range(11))


@pytest.mark.parametrize(("height", "width"), [(5, 8), (6, 7), (6, 8)])
def test_a_box_outside_the_image_is_refused(height, width):
    zeros = torch.zeros(2, dtype=torch.int64)
    crops = Crops(zeros, zeros, torch.tensor([5, height]), torch.tensor([7, width]), zeros.bool())
    with pytest.raises(ValueError, match=r"apply_crops: a box ends outside the image, which is \(5, 7\)"):
        apply_crops(torch.zeros(3, 5, 7, dtype=torch.uint8), crops, (8, 8))


def test_crops_can_be_made_by_hand():
    ones = torch.ones(1, dtype=torch.int64)
    pixels = torch.arange(48, dtype=torch.uint8).view(3, 4, 4)
    got = apply_crops(pixels, Crops(ones, ones, 3 * ones, 3 * ones, ones.bool()), (3, 3))
    assert got.equal(pixels[None, :, 1:, 1:].flip(-1))


def first_that_fits(draws, height, width, scale, ratio):
    """The rule for one box, step by step; also whether all attempts failed."""
    for area, shape in zip(draws[:10], draws[10:20], strict=True):
        area = height * width * (scale[0] + (scale[1] - scale[0]) * area)
        aspect = math.exp(math.log(ratio[0]) + (math.log(ratio[1]) - math.log(ratio[0])) * shape)
        w, h = round(math.sqrt(area * aspect)), round(math.sqrt(area / aspect))
        if 0 < w <= width and 0 < h <= height:
            return (int(draws[20] * (height - h + 1)), int(draws[21] * (width - w + 1)), h, w), False
    h, w = height, width
    if width / height < ratio[0]:
        h = round(width / ratio[0])
    elif width / height > ratio[1]:
        w = round(height * ratio[1])
    return ((height - h) // 2, (width - w) // 2, h, w), True


@pytest.mark.parametrize(("size", "scale", "ratio", "failures"), [
    ((100, 110), (1.0, 1.0), (3 / 4, 4 / 3), (200, 399)),  # the image's own ratio is allowed: the fallback is all of it
    ((110, 100), (1.0, 1.0), (3 / 4, 4 / 3), (200, 399)),
    ((100, 110), (0.9, 1.0), (3 / 4, 4 / 3), (1, 200)),
    ((90, 300), (0.5, 1.0), (3 / 4, 4 / 3), (300, 400)),
    ((300, 91), (0.5, 1.0), (3 / 4, 4 / 3), (300, 400)),
    ((375, 500), (0.08, 1.0), (3 / 4, 4 / 3), (0, 0)),
    ((3, 4), (0.01, 1.0), (1 / 9, 9.0), (0, 10)),  # boxes of one pixel, and of none
])  # fmt: skip
def test_convention_boxes_are_the_first_of_ten_attempts_that_fits(size, scale, ratio, failures):
    """The columns of the draws: ten areas, ten shapes, top, left, mirrored."""
    crops = sample_crops(400, size, generator=generator(2), scale=scale, ratio=ratio)
    draws = torch.rand(400, 23, generator=generator(2), dtype=torch.float64)
    want = [first_that_fits(row, *size, scale, ratio) for row in draws.tolist()]
    assert failures[0] <= sum(failed for _, failed in want) <= failures[1]
    got = torch.stack([crops.top, crops.left, crops.height, crops.width], dim=1)
    assert [tuple(box) for box in got.tolist()] == [box for box, _ in want]
    assert crops.flip.tolist() == [coin < 0.5 for coin in draws[:, -1].tolist()]


def test_the_first_boxes_and_the_next_draws_do_not_depend_on_the_number():
    def drawn(n):
        stream = generator(5)
        crops = sample_crops(n, (37, 50), generator=stream)
        return torch.stack([value.long() for value in vars(crops).values()], dim=1), torch.rand(4, generator=stream)

    want, after = drawn(64)
    for n in (0, 1, 2, 7, 63):
        got, next_draws = drawn(n)
        assert got.equal(want[:n])
        assert next_draws.equal(after)


def test_the_fallback_is_the_whole_image_if_its_ratio_is_allowed():
    crops = sample_crops(200, (100, 110), generator=generator(), scale=(1.0, 1.0), ratio=(3 / 4, 1.1))
    whole = (crops.height == 100) & (crops.width == 110)
    assert whole.sum() > 100
    assert crops.top[whole].eq(0).all()
    assert crops.left[whole].eq(0).all()


@pytest.mark.parametrize(("options", "message"), [
    ({"scale": (0.0, 1.0)}, r"crops: scale must be .* 0 < low <= high <= 1, but got \(0.0, 1.0\)"),
    ({"scale": (0.5, 0.1)}, r"crops: scale must be .* but got \(0.5, 0.1\)"),
    ({"scale": (0.5, 1.1)}, r"crops: scale must be .* but got \(0.5, 1.1\)"),
    ({"ratio": (0.0, 1.0)}, r"crops: ratio must be .* 0 < low <= high, but got \(0.0, 1.0\)"),
    ({"ratio": (2.0, 1.0)}, r"crops: ratio must be .* but got \(2.0, 1.0\)"),
])  # fmt: skip
def test_ranges_that_cannot_be_used(options, message):
    with pytest.raises(ValueError, match=message):
        sample_crops(2, (40, 60), generator=generator(), **options)


@pytest.mark.parametrize("options", [{"scale": (0.3, 0.3)}, {"scale": (1e-6, 1.0)}, {"ratio": (2.0, 2.0)}])
def test_ranges_may_be_a_single_value(options):
    assert len(sample_crops(5, (40, 60), generator=generator(), **options).top) == 5


def test_no_crops():
    crops = sample_crops(0, (40, 60), generator=generator())
    assert apply_crops(torch.zeros(3, 40, 60, dtype=torch.uint8), crops, (8, 8)).shape == (0, 3, 8, 8)


def test_the_default_ranges_are_torchvisions():
    theirs = transforms.RandomResizedCrop(8)
    got = sample_crops(9, (375, 500), generator=generator())
    want = sample_crops(9, (375, 500), generator=generator(), scale=theirs.scale, ratio=theirs.ratio)
    assert all(a.equal(b) for a, b in zip(vars(got).values(), vars(want).values(), strict=True))


def test_convention_boxes_of_given_draws(monkeypatch):
    """A draw of one half is the middle of each range, and is not mirrored."""
    monkeypatch.setattr(tpt_lib.views.crops, "uniform_rows", lambda *_: torch.full((1, 23), 0.5, dtype=torch.float64))
    crops = sample_crops(1, (100, 100), generator=generator(), scale=(0.25, 0.75), ratio=(0.25, 4.0))
    assert {name: value.item() for name, value in vars(crops).items()} == {
        "top": 15, "left": 15, "height": 71, "width": 71, "flip": False,
    }  # fmt: skip
