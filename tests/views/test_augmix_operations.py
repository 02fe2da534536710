"""AugMix's operations: each equals PIL's on photographs, and on odd images."""

import pytest
import torch
from oracles.augmix import PIL_OPERATIONS
from support.augmix import amounts, odd_cases
from support.marking import slow_but
from support.pictures import as_pil, difference, levels

from tpt_lib.views import AugMix
from tpt_lib.views import augmix_operations as operations

# levels of 255 that a pixel may differ from PIL's, and the share of pixels that may differ at all. Tables and whole pixels are
# exact. Shears and rotations are interpolated in float32, PIL's in float64, and both truncate.
TOLERANCE = {"shear_x": (1, 1e-4), "shear_y": (1, 1e-4), "rotate": (1, 2e-3)}


def test_operations_are_numbered_as_in_the_released_code():
    assert tuple(PIL_OPERATIONS) == AugMix.NAMES


def pil_batch(name, images, amount):
    pairs = zip(images, amount.tolist(), strict=True)
    return torch.stack([levels(PIL_OPERATIONS[name](as_pil(image), a)) for image, a in pairs])


@pytest.mark.parametrize("severity", slow_but([10], [1, 10]))
@pytest.mark.parametrize("name", AugMix.NAMES)
def test_operations_are_pils(name, severity, cut):
    amount = amounts(name, len(cut), severity)
    got = getattr(operations, name)(cut, amount)
    assert got.dtype == torch.uint8
    apart = difference(got, pil_batch(name, cut, amount))
    most, share = TOLERANCE.get(name, (0, 0))
    assert apart.max() <= most
    assert (apart > 0).float().mean() <= share


@pytest.mark.parametrize("name", AugMix.NAMES)
def test_operations_change_photographs(name, cut):
    amount = amounts(name, 4, 1).abs().clamp(min=amounts(name, 200, 1).abs().median())
    assert (difference(getattr(operations, name)(cut[:4], amount), cut[:4]) > 0).float().mean() > 0.001


@pytest.mark.parametrize("name", AugMix.NAMES)
def test_operations_on_flat_tiny_and_oblong_images(name):
    for images, amount in odd_cases(name):
        assert difference(getattr(operations, name)(images, amount), pil_batch(name, images, amount)).max() <= 1


def test_operations_do_not_write_to_their_input(cut):
    before = cut.clone()
    for name in AugMix.NAMES:
        getattr(operations, name)(cut, amounts(name, len(cut), 1))
    assert cut.equal(before)


@pytest.mark.parametrize("name", ["translate_x", "translate_y"])
def test_translations_up_to_and_out_of_the_frame(name):
    images = torch.randint(1, 256, (8, 3, 6, 6), dtype=torch.uint8)
    amount = torch.tensor([-9.0, -6, -5, -1, 1, 5, 6, 9], dtype=torch.float64)
    got = getattr(operations, name)(images, amount)
    assert got.equal(pil_batch(name, images, amount))
    assert got.flatten(1).any(dim=1).tolist() == [False, False, True, True, True, True, False, False]


@pytest.mark.parametrize("side", [15, 16, 20])
def test_equalize_with_one_pixel_or_none_for_each_level(side):
    images = torch.randint(0, 256, (4, 3, side, side), dtype=torch.uint8)
    unused = torch.ones(4)
    assert operations.equalize(images, unused).equal(pil_batch("equalize", images, unused))


@pytest.mark.parametrize("name", ["shear_x", "shear_y"])
@pytest.mark.parametrize("tangents", [[0.01, 0.3], [-0.01, -0.3]])
def test_shears_to_one_side(name, tangents):
    images, amount = torch.randint(0, 256, (2, 3, 17, 17), dtype=torch.uint8), torch.tensor(tangents).double()
    assert difference(getattr(operations, name)(images, amount), pil_batch(name, images, amount)).max() <= 1


@pytest.mark.parametrize("level", [1, 100, 254])
def test_rotated_levels_are_truncated_but_not_because_of_rounding(level):
    """The right one of two pixels is read between both, at a distance of (1 + cos) / 2 from the left one."""
    images = torch.tensor([0, 255], dtype=torch.uint8).expand(2, 3, 1, 2)
    between = (level - torch.tensor([3e-4, 1e-4], dtype=torch.float64)) / 255
    rotated = operations.rotate(images, (2 * between - 1).acos().rad2deg())
    assert rotated[:, 0, 0, 1].tolist() == [level - 1, level]


def test_a_pixel_read_exactly_at_the_border_is_black():
    white = torch.full((1, 3, 2, 3), 255, dtype=torch.uint8)
    assert operations.rotate(white, torch.tensor([90.0]).double())[0, 0].tolist() == [[0, 255, 0], [0, 255, 0]]
