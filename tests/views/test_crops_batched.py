"""Crops as matrix products: they equal the plain ones, in a number of operations that does not grow."""

import math
from fractions import Fraction

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from support.pictures import PHOTOS, difference, generator, load

import tpt_lib.views.crops_batched
from tpt_lib.views import Crops, apply_crops, read_image, sample_crops
from tpt_lib.views.crops_batched import _rounded, cut_boxes, weights


def batched(pixels, crops, size):
    boxes = torch.stack([value.long() for value in vars(crops).values()], dim=1)
    views = torch.empty(len(boxes), 3, *size, dtype=torch.uint8)
    cut_boxes(views, pixels, boxes)
    return views


@pytest.mark.parametrize("name", PHOTOS)
@pytest.mark.parametrize("size", [(224, 224), (40, 64), (64, 40)])
def test_photographs_are_cut_as_one_by_one(name, size):
    pixels = read_image(load(name))
    crops = sample_crops(12, pixels.shape[1:], generator=generator())
    apart = difference(batched(pixels, crops, size), apply_crops(pixels, crops, size))
    assert apart.max() <= 1
    assert (apart > 0).float().mean() <= 1e-4


@st.composite
def cuts(draw):
    """An image, boxes of it that may be one pixel, whole or anything between, and a size that may be smaller or larger."""
    height, width = draw(st.integers(1, 300)), draw(st.integers(1, 300))
    boxes = []
    for _ in range(draw(st.integers(1, 4))):
        rows, columns = draw(st.integers(1, height)), draw(st.integers(1, width))
        top, left = draw(st.integers(0, height - rows)), draw(st.integers(0, width - columns))
        boxes.append([top, left, rows, columns, draw(st.booleans())])
    values = torch.tensor(boxes).T
    size = draw(st.integers(1, 70)), draw(st.integers(1, 70))
    return (height, width), Crops(*values[:4], values[4].bool()), size, draw(st.integers(0, 10**6))


@given(cuts())
def test_any_boxes_are_cut_as_one_by_one(cut):
    shape, crops, size, seed = cut
    pixels = torch.randint(0, 256, (3, *shape), dtype=torch.uint8, generator=generator(seed))
    assert difference(batched(pixels, crops, size), apply_crops(pixels, crops, size)).max() <= 1


@pytest.mark.parametrize("shape", [(1, 1), (1, 5000), (5000, 1)])
def test_odd_images(shape):
    pixels = torch.randint(0, 256, (3, *shape), dtype=torch.uint8)
    crops = sample_crops(5, shape, generator=generator(), ratio=(1e-4, 1e4))
    assert difference(batched(pixels, crops, (24, 24)), apply_crops(pixels, crops, (24, 24))).max() <= 1


def test_white_stays_white():
    """Weights are rounded, and their sum may be above 1."""
    pixels = torch.full((3, 300, 700), 255, dtype=torch.uint8)
    crops = sample_crops(30, (300, 700), generator=generator())
    assert batched(pixels, crops, (31, 31)).eq(255).all()


def test_no_boxes():
    crops = sample_crops(0, (40, 60), generator=generator())
    assert batched(torch.zeros(3, 40, 60, dtype=torch.uint8), crops, (8, 8)).shape == (0, 3, 8, 8)


def test_boxes_of_large_images_are_cut_in_parts(monkeypatch, operations_on):
    pixels = torch.randint(0, 256, (3, 90, 120), dtype=torch.uint8)
    crops = sample_crops(7, (90, 120), generator=generator())
    with operations_on("cpu") as counted:
        want = batched(pixels, crops, (32, 24))
    per_box = 2 * 32 * 120 + 3 * 90 * 24
    for most in (1, 3 * per_box):
        monkeypatch.setattr(tpt_lib.views.crops_batched, "MOST_TOGETHER", most)
        with operations_on("cpu") as parts:
            assert batched(pixels, crops, (32, 24)).equal(want)
        assert parts.names.count("bmm") == {1: 7, 3 * per_box: 3}[most]
    assert counted.names.count("bmm") == 1


def pil_weights(length, n_out):
    """Weights ``(n_out, length)`` as PIL and torch round them: 15 bits for the largest, and at most 22 places."""
    half, scale = Fraction(1, 2), Fraction(length, n_out)
    rows = []
    for i in range(n_out):
        row = [max(Fraction(0), 1 - abs(j + half - (i + half) * scale) / max(scale, 1)) for j in range(length)]
        rows.append([weight / sum(row) for weight in row])
    largest, places = max(map(max, rows)), 0
    while places < 22 and math.floor(largest * 2 ** (places + 1) + half) < 2**15:
        places += 1
    return torch.tensor([[math.floor(weight * 2**places + half) / 2**places for weight in row] for row in rows])


@pytest.mark.parametrize(("length", "n_out"), [(37, 8), (8, 37), (9, 9), (400, 1)])
def test_weights_are_rounded_as_pils(length, n_out):
    boxes = torch.tensor([[0, 1, 3, length, 0], [2, 3, 5, length - 1, 1]])
    across, down = weights(boxes, (8, length + 4), (4, n_out), torch.device("cpu"))
    for (top, left, height, width, flip), columns, rows in zip(boxes.tolist(), across, down, strict=True):
        want = torch.zeros(n_out, length + 4)
        want[:, left : left + width] = pil_weights(width, n_out)
        assert columns.equal(want.flip(0) if flip else want)
        assert rows[:, top : top + height].equal(pil_weights(height, 4))
        assert rows.count_nonzero() == rows[:, top : top + height].count_nonzero()


def test_the_largest_weight_may_round_to_all_of_its_15_bits():
    """Of 65536, the largest weight here is 32767.25."""
    assert (_rounded(torch.tensor([[[131069, 131069, 6]]])) * 2**16).tolist() == [[[32767, 32767, 2]]]
