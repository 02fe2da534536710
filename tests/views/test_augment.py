"""Views: parity with the usual PIL loops, reproducibility, several images, loaders, your own recipe."""

import math

import numpy as np
import pytest
import torch
import torchvision.transforms.functional as tv
from oracles.augmix import pil_augmix
from oracles.crops import pil_crops
from support.marking import slow_but
from support.pictures import Labeled, Plain, as_pil, generator, kinds, levels, load

from tpt_lib import ImageSpec
from tpt_lib.views import (
    ViewsDataset,
    apply_augmix,
    apply_crops,
    augment_views,
    image_generator,
    preprocess,
    read_image,
    sample_augmix,
    sample_crops,
)

SPEC = ImageSpec((224, 224))
SMALL = ImageSpec((32, 32))


@pytest.mark.parametrize("spec", [SPEC, ImageSpec((48, 32))], ids=["square", "tall"])
def test_normalized_crops_are_torchvisions(spec):
    image = load("coffee")
    views = augment_views(image, spec, n_views=17)
    crops = sample_crops(16, (400, 600), generator=image_generator(read_image(image)))
    want = tv.normalize(pil_crops(image, vars(crops).values(), spec.size) / 255, spec.mean, spec.std)
    apart = (views[1:] - want).abs() * torch.tensor(spec.std)[:, None, None] * 255
    assert apart.max() <= 1.001
    assert apart.mean() <= 0.05
    torch.testing.assert_close(views[0], preprocess(image, spec), rtol=0, atol=0)


@pytest.mark.parametrize(
    ("severity", "spec"), slow_but([(3, ImageSpec((48, 32)))], [(1, SPEC), (3, SPEC), (3, ImageSpec((48, 32)))])
)
def test_augmix_is_the_released_codes(severity, spec):
    image = load("chelsea")
    views = augment_views(image, spec, n_views=33, recipe="augmix", severity=severity)
    pixels = read_image(image)
    stream = image_generator(pixels)
    crops = sample_crops(32, pixels.shape[1:], generator=stream)
    params = sample_augmix(32, spec.size, generator=stream, severity=severity)
    rows = zip(apply_crops(pixels, crops, spec.size), *vars(params).values(), strict=True)
    want = torch.stack([pil_augmix(as_pil(view), *row, spec.mean, spec.std) for view, *row in rows])
    apart = (views[1:] - want).abs() * torch.tensor(spec.std)[:, None, None] * 255
    assert apart.mean() <= 0.001
    assert (apart > 1.001).float().mean() <= 1e-5  # a level of a shear or rotation that posterize amplifies


def test_parameters_can_be_kept_shown_and_replayed():
    image = load("rocket")
    pixels = read_image(image)
    stream = image_generator(pixels, seed=5)
    crops = sample_crops(7, pixels.shape[1:], generator=stream)
    params = sample_augmix(7, SMALL.size, generator=stream)
    assert "Crops(top=tensor([" in repr(crops)
    assert "AugMix(operation=tensor([" in repr(params)

    def replay(pixels, size, n, generator):
        return apply_augmix(apply_crops(pixels, crops, size), params)

    got = augment_views(image, SMALL, n_views=8, recipe=replay, seed=99)
    assert got.equal(augment_views(image, SMALL, n_views=8, recipe="augmix", seed=5))


@pytest.mark.parametrize("recipe", ["crop", "augmix"])
def test_views_depend_on_the_seed_and_the_image_alone(recipe, images):
    def views(image, seed=3):
        return augment_views(image, SMALL, n_views=9, recipe=recipe, seed=seed)

    want = [views(image) for image in images]
    torch.manual_seed(77)
    np.random.seed(77)
    batch = views(images[::-1])
    assert batch.shape == (4, 9, 3, 32, 32)
    assert batch.flip(0).equal(torch.stack(want))
    assert not views(images[0], seed=4)[1:].equal(want[0][1:])
    assert views(images[0], seed=4)[0].equal(want[0][0])
    nearly = images[0].copy()
    nearly.putpixel((0, 0), (1, 2, 3))
    assert (views(nearly) - want[0]).abs().mean() > 0.1  # other boxes, not other pixels
    threads = torch.get_num_threads()
    try:
        large = []
        for count in (1, 2):
            torch.set_num_threads(count)
            large.append(augment_views(images[1], SPEC, n_views=9, recipe=recipe))
            assert all(views(image).equal(view) for image, view in zip(images, want, strict=True))
        assert large[0].equal(large[1])
    finally:
        torch.set_num_threads(threads)


@pytest.mark.parametrize("recipe", ["crop", "augmix"])
def test_the_container_of_the_pixels_does_not_matter(recipe, tmp_path):
    image = load("coffee").resize((60, 40))
    image.save(tmp_path / "coffee.png")
    want = augment_views(image, SMALL, n_views=5, recipe=recipe)
    for other in (
        levels(image),
        levels(image).contiguous(),
        levels(image) / 255,
        (levels(image) / 255).double(),
        np.array(image),
        np.array(image) / 255,
        np.array(image)[:, ::-1][:, ::-1],
        tmp_path / "coffee.png",
        str(tmp_path / "coffee.png"),
        image.convert("RGBA"),
    ):
        assert augment_views(other, SMALL, n_views=5, recipe=recipe).equal(want)


@pytest.mark.parametrize("recipe", ["crop", "augmix"])
def test_fewer_views_are_the_first_of_many(recipe, images):
    many = augment_views(images[0], SMALL, n_views=24, recipe=recipe, seed=1)
    for n in (1, 2, 3, 9, 23):
        assert augment_views(images[0], SMALL, n_views=n, recipe=recipe, seed=1).equal(many[:n])


def test_the_global_generators_stay_as_they_were(images):
    before, numpys = torch.get_rng_state(), np.random.get_state()[1].copy()
    augment_views(images[0], SMALL, n_views=5, recipe="augmix")
    assert torch.get_rng_state().equal(before)
    assert (np.random.get_state()[1] == numpys).all()


def test_a_generator_as_seed_is_drawn_from_once(images):
    stream = generator(8)
    first = augment_views(images, SMALL, n_views=3, seed=stream)
    second = augment_views(images, SMALL, n_views=3, seed=stream)
    assert not first.equal(second)
    seed = int(torch.randint(2**62, (), generator=generator(8)))
    assert first.equal(augment_views(images, SMALL, n_views=3, seed=seed))


@pytest.mark.parametrize("workers", [0, 2])
def test_a_loader_gives_the_same_whatever_its_workers(workers, images):
    data = ViewsDataset(Labeled(images), SMALL, n_views=5, recipe="augmix", seed=generator(4))
    seed = int(torch.randint(2**62, (), generator=generator(4)))
    want = augment_views(images, SMALL, n_views=5, recipe="augmix", seed=seed)
    (batch, labels, names) = next(iter(torch.utils.data.DataLoader(data, batch_size=4, num_workers=workers)))
    assert batch.equal(want)
    assert labels.tolist() == [0, 1, 2, 3]
    assert list(names) == ["name 0", "name 1", "name 2", "name 3"]


def test_a_dataset_without_labels(images):
    data = ViewsDataset(images, SMALL, n_views=3)
    assert len(data) == 4
    assert data[2].equal(augment_views(images[2], SMALL, n_views=3))


@pytest.mark.parametrize("as_float", [True, False])
def test_a_recipe_of_your_own(as_float, images):
    seen = {}

    def recipe(pixels, size, n, generator):
        seen.update(pixels=pixels, size=size, n=n)
        views = torch.randint(0, 256, (n, 3, *size), generator=generator, dtype=torch.uint8)
        seen["views"] = views
        return views / 255 if as_float else views

    views = augment_views(images[0], SMALL, n_views=4, recipe=recipe)
    assert seen["pixels"].equal(levels(images[0]))
    assert (seen["size"], seen["n"]) == ((32, 32), 3)
    torch.testing.assert_close(views[1:], tv.normalize(seen["views"] / 255, SMALL.mean, SMALL.std))
    assert views.equal(augment_views(images[0], SMALL, n_views=4, recipe=recipe))


def test_one_view_is_the_plain_one(images):
    def never(*_):
        raise AssertionError

    assert augment_views(images[0], SMALL, n_views=1, recipe=never).equal(preprocess(images[0], SMALL)[None])
    assert augment_views([], SMALL, n_views=2).shape == (0, 2, 3, 32, 32)


@pytest.mark.parametrize("size", [(1, 1), (1, 5000), (5000, 1), (3, 700)])
@pytest.mark.parametrize("mode", ["shortest", "longest", "squash"])
@pytest.mark.parametrize("recipe", ["crop", "augmix"])
def test_odd_sizes(size, mode, recipe):
    pixels = torch.full((3, *size), 100, dtype=torch.uint8)
    spec = ImageSpec((224, 224), resize_mode=mode, fill=100)
    views = augment_views(pixels, spec, n_views=5, recipe=recipe)
    level = (100 / 255 - torch.tensor(spec.mean)) / torch.tensor(spec.std)
    assert views.isfinite().all()
    want = level[:, None, None].expand(3, 224, 224)
    torch.testing.assert_close(views[0], want)
    if recipe == "crop":
        torch.testing.assert_close(views, want.expand(5, -1, -1, -1))


@pytest.mark.slow
def test_a_huge_image():
    pixels = torch.randint(0, 256, (3, 600, 800), dtype=torch.uint8)
    pixels = pixels.repeat_interleave(10, dim=1).repeat_interleave(10, dim=2)
    crops = sample_crops(3, (6000, 8000), generator=image_generator(read_image(pixels)))
    views = augment_views(pixels, SPEC, n_views=4)
    want = tv.normalize(pil_crops(as_pil(pixels), vars(crops).values(), SPEC.size) / 255, SPEC.mean, SPEC.std)
    assert ((views[1:] - want).abs() * torch.tensor(SPEC.std)[:, None, None] * 255).max() <= 2


def test_the_callers_image_is_not_written_to():
    pixels = torch.randint(0, 256, (40, 60, 3), dtype=torch.uint8).permute(2, 0, 1)
    before = pixels.clone()
    augment_views(pixels, SMALL, n_views=5, recipe="augmix")
    assert pixels.equal(before)
    floats = torch.rand(3, 40, 60, requires_grad=True)
    assert not augment_views(floats, SMALL, n_views=2).requires_grad


@pytest.mark.parametrize("kind", kinds(torch.zeros(1, 3, 8, 6)))
@pytest.mark.parametrize("recipe", ["crop", "augmix"])
def test_views_of_several_images_are_those_of_each(kind, recipe):
    pixels = torch.randint(0, 256, (3, 3, 40, 60), dtype=torch.uint8)
    want = torch.stack([augment_views(image, SMALL, n_views=4, recipe=recipe, seed=2) for image in pixels])
    got = augment_views(kinds(pixels)[kind], SMALL, n_views=4, recipe=recipe, seed=2)
    assert got.shape == (3, 4, 3, 32, 32)
    assert got.equal(want)
    one = augment_views(kinds(pixels[:1])[kind], SMALL, n_views=4, recipe=recipe, seed=2)
    assert one.shape == (1, 4, 3, 32, 32)
    assert one.equal(want[:1])


def test_each_image_of_a_dataset_is_read_once(images):
    data = Labeled(images)
    augment_views(data, SMALL, n_views=2)
    assert data.read == [0, 1, 2, 3]


@pytest.mark.parametrize(
    "none", [[], (), torch.zeros(0, 3, 8, 6), Plain([])], ids=["list", "tuple", "tensor", "dataset"]
)
def test_no_images_have_no_views(none):
    assert augment_views(none, SMALL, n_views=2).shape == (0, 2, 3, 32, 32)


def test_views_are_made_on_the_device_that_is_wanted(images):
    assert augment_views(images[0], SMALL, n_views=3).device.type == "cpu"
    views = augment_views(levels(images[0]), SMALL, n_views=3, device="meta")
    assert (views.device.type, views.shape, views.dtype) == ("meta", (3, 3, 32, 32), torch.float32)


@pytest.mark.parametrize(("recipe", "most"), [("crop", 80), ("augmix", 400)])
def test_an_accelerator_makes_all_views_in_few_operations(recipe, most, operations_on):
    """And never waits: a meta tensor has no values to wait for."""
    pixels = torch.zeros(3, 375, 500, dtype=torch.uint8)
    with operations_on("meta") as counted:
        augment_views(pixels, SPEC, recipe=recipe, device="meta")
    with operations_on("meta") as half:
        augment_views(pixels, SPEC, n_views=33, recipe=recipe, device="meta")
    assert 30 < len(half.names) == len(counted.names) <= most
    assert pixels.nbytes < counted.bytes <= 1.2e6


@pytest.mark.parametrize("recipe", ["crop", "augmix"])
def test_views_are_float32_whatever_torchs_default_is(recipe, images):
    want = augment_views(images[0], SMALL, n_views=4, recipe=recipe)
    torch.set_default_dtype(torch.float64)
    try:
        got = augment_views(images[0], SMALL, n_views=4, recipe=recipe)
        assert augment_views(images[0], SMALL, n_views=4, device="meta").dtype == torch.float32
    finally:
        torch.set_default_dtype(torch.float32)
    torch.testing.assert_close(got, want, rtol=1e-5, atol=1e-6)


def test_the_options_of_views_are_used(images):
    crops = {"scale": (0.2, 0.3), "ratio": (1.0, 1.1)}
    got = augment_views(images[0], SMALL, n_views=6, **crops)
    pixels = read_image(images[0])
    boxes = sample_crops(5, pixels.shape[1:], generator=image_generator(pixels), **crops)
    want = tv.normalize(apply_crops(pixels, boxes, SMALL.size) / 255, SMALL.mean, SMALL.std)
    torch.testing.assert_close(got[1:], want)
    assert not got.equal(augment_views(images[0], SMALL, n_views=6))


@pytest.mark.parametrize(("recipe", "message"), [
    (lambda *_: 3, r"must return a tensor of shape \(63, 3, 32, 32\), but it returned int"),
    (lambda *_: torch.zeros(2), r"but it returned a tensor of shape \(2,\)"),
    (lambda p, s, n, g: torch.randn(n, 3, *s), r"float in \[0, 1\], not normalized, but it returned torch.float32"),
    (lambda p, s, n, g: torch.full((n, 3, *s), math.nan), r"torch.float32 in nan..nan"),
    (lambda p, s, n, g: torch.zeros(n, 3, *s).long(), r"but it returned torch.int64 in 0..0"),
])  # fmt: skip
def test_what_a_recipe_may_not_return(recipe, message, no_shape_checks):
    with pytest.raises(ValueError, match=message):
        augment_views(torch.zeros(3, 40, 60), SMALL, recipe=recipe)


def test_a_number_of_views_that_cannot_be_used(images):
    with pytest.raises(ValueError, match="n_views must be an int of at least 1, but got 0"):
        augment_views(images[0], SMALL, n_views=0)
