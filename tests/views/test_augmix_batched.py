"""AugMix in batched operations: each equals the plain one, and so do whole views."""

import pytest
import torch
from support.augmix import amounts, odd_cases
from support.marking import slow_but
from support.pictures import difference, generator, load

import tpt_lib.views.augmix_batched
from tpt_lib.views import AugMix, apply_augmix, apply_crops, augmix_operations, read_image, sample_augmix, sample_crops
from tpt_lib.views.augmix_batched import OFFSETS, TABLES, map_levels, mix_batched, move

# the share of pixels that may differ at all, by one level. PIL's autocontrast is in float64, and shears and rotations truncate.
SHARE = {"autocontrast": 0.01, "shear_x": 1e-3, "shear_y": 1e-3, "rotate": 3e-3}


def batched(name, images, amount):
    """One operation of ``AugMix.NAMES`` on a batch, as ``mix_batched`` computes it."""
    if name in OFFSETS:
        return move(images, OFFSETS[name](amount, *images.shape[2:]))
    if name in TABLES:
        return map_levels(images, 0, TABLES[name](amount))
    return map_levels(images, len(images) if name == "autocontrast" else 0, torch.empty(0, 256, dtype=torch.uint8))


def mixed(views, params):
    out = torch.empty(views.shape)
    mix_batched(out, views, params)
    return out


@pytest.mark.parametrize("severity", slow_but([10], [1, 10]))
@pytest.mark.parametrize("name", AugMix.NAMES)
def test_each_operation_is_the_plain_one(name, severity, cut):
    amount = amounts(name, len(cut), severity)
    apart = difference(batched(name, cut, amount), getattr(augmix_operations, name)(cut, amount))
    assert apart.max() <= 1
    assert (apart > 0).float().mean() <= SHARE.get(name, 0)


@pytest.mark.parametrize("name", AugMix.NAMES)
def test_operations_on_flat_tiny_and_oblong_images(name):
    for images, amount in odd_cases(name):
        want = getattr(augmix_operations, name)(images, amount)
        assert difference(batched(name, images, amount), want).max() <= 1


@pytest.mark.parametrize("name", ["translate_x", "translate_y"])
def test_translations_up_to_and_out_of_the_frame(name):
    images = torch.randint(1, 256, (8, 3, 6, 6), dtype=torch.uint8)
    amount = torch.tensor([-9.0, -6, -5, -1, 1, 5, 6, 9], dtype=torch.float64)
    assert batched(name, images, amount).equal(getattr(augmix_operations, name)(images, amount))


@pytest.mark.parametrize("severity", slow_but([1], [1, 3]))
def test_whole_views_are_the_plain_ones(severity, cut):
    params = sample_augmix(len(cut), (224, 224), generator=generator(1), severity=severity)
    apart = (mixed(cut, params) - apply_augmix(cut, params)).abs() * 255
    assert (apart > 1.001).float().mean() <= 1e-3
    assert apart.mean() <= 0.01


def test_views_from_the_raw_image_are_the_plain_ones():
    """At most 2% of the values may differ by more than a level, because posterize, solarize and equalize amplify one."""
    pixels = read_image(load("coffee"))
    crops = sample_crops(24, pixels.shape[1:], generator=generator())
    params = sample_augmix(24, (224, 224), generator=generator(1))
    boxes = torch.stack([value.long() for value in vars(crops).values()], dim=1)
    views = torch.empty(24, 3, 224, 224, dtype=torch.uint8)
    tpt_lib.views.crops_batched.cut_boxes(views, pixels, boxes)
    apart = (mixed(views, params) - apply_augmix(apply_crops(pixels, crops, (224, 224)), params)).abs() * 255
    assert (apart > 1.001).float().mean() <= 0.02


@pytest.mark.parametrize("n", [0, 1, 2])
def test_few_views(n):
    """Some steps then use no table, or move nothing."""
    views = torch.randint(0, 256, (n, 3, 12, 9), dtype=torch.uint8)
    for seed in range(8):
        params = sample_augmix(n, (12, 9), generator=generator(seed))
        before = views.clone()
        torch.testing.assert_close(mixed(views, params), apply_augmix(views, params), rtol=0, atol=1.001 / 255)
        assert views.equal(before)


def test_many_views_are_mixed_in_parts(monkeypatch, operations_on):
    views = torch.randint(0, 256, (7, 3, 16, 12), dtype=torch.uint8)
    params = sample_augmix(7, (16, 12), generator=generator())
    want = mixed(views, params)
    for most, parts in ((1, 7), (3 * 3 * views[0].numel(), 3)):
        monkeypatch.setattr(tpt_lib.views.augmix_batched, "MOST_TOGETHER", most)
        with operations_on("cpu") as counted:
            assert mixed(views, params).equal(want)
        assert counted.names.count("addcmul_") == 3 * parts


@pytest.mark.parametrize("low", [0, 7, 254])
def test_autocontrast_of_two_adjacent_levels_is_black_and_white(low):
    images = torch.tensor([low, low + 1], dtype=torch.uint8).repeat(2, 3, 4, 3)
    want = torch.tensor([0, 255], dtype=torch.uint8).repeat(2, 3, 4, 3)
    assert batched("autocontrast", images, torch.ones(2)).equal(want)


@pytest.mark.parametrize("level", [1, 100, 254])
def test_moved_levels_are_truncated_but_not_because_of_rounding(level):
    images = torch.tensor([0, 255], dtype=torch.uint8).expand(2, 3, 1, 2)
    right = (level - torch.tensor([3e-4, 1e-4], dtype=torch.float64)) / 255
    moved = move(images, OFFSETS["translate_x"](right, 1, 2))
    assert moved[:, 0, 0, 0].tolist() == [level - 1, level]
