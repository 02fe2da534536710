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
    apart = difference(getattr(operations, name)(cut, amount), pil_batch(name, cut, amount))
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
