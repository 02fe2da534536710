"""Views: parity with PIL on photographs, distributions, reproducibility, every kind of input, every error."""

import io
import math
import re
import warnings

import numpy as np
import PIL.Image
import pytest
import scipy.stats
import skimage.data
import torch
import torchvision.transforms as transforms
import torchvision.transforms.functional as tv
import tpt_lib.augmix
import tpt_lib.crops
from hypothesis import given
from hypothesis import strategies as st
from PIL import ImageOps

from tpt_lib import ImageSpec, operations
from tpt_lib.views.augment import ViewsDataset, augment_views
from tpt_lib.views.augmix import AugMix, apply_augmix, sample_augmix
from tpt_lib.views.crops import Crops, apply_crops, sample_crops
from tpt_lib.views.preprocessing import preprocess
from tpt_lib.views.reading import ImageError, read_image
from tpt_lib.views.seeding import image_generator

BILINEAR = PIL.Image.Resampling.BILINEAR
SPEC = ImageSpec((224, 224))
SMALL = ImageSpec((32, 32))
PHOTOS = ["astronaut", "chelsea", "coffee", "rocket"]


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def load(name):
    return PIL.Image.fromarray(getattr(skimage.data, name)())


def levels(image):
    return torch.from_numpy(np.array(image)).permute(2, 0, 1)


def as_pil(pixels):
    return PIL.Image.fromarray(pixels.permute(1, 2, 0).contiguous().numpy())


def difference(a, b):
    return (a.int() - b.int()).abs()


@pytest.fixture(scope="module")
def cut():
    """Real crops at 224 of all photographs, ``(48, 3, 224, 224)``."""
    pixels = [read_image(load(name)) for name in PHOTOS]
    return torch.cat([apply_crops(p, sample_crops(12, p.shape[1:], generator=generator()), (224, 224)) for p in pixels])


# crops


def pil_crops(image, crops, size):
    views = []
    for top, left, height, width, flip in zip(*(t.tolist() for t in vars(crops).values()), strict=True):
        view = tv.resized_crop(image, top, left, height, width, list(size), tv.InterpolationMode.BILINEAR)
        views.append(levels(tv.hflip(view) if flip else view))
    return torch.stack(views)


@pytest.mark.parametrize("name", PHOTOS)
@pytest.mark.parametrize("size", [(224, 224), (40, 64)])
@pytest.mark.parametrize("device_takes_bytes", [True, False])
def test_crops_are_torchvisions(name, size, device_takes_bytes, monkeypatch):
    monkeypatch.setattr(tpt_lib.views.crops, "_resizes_bytes", lambda device: device_takes_bytes)
    image = load(name)
    crops = sample_crops(24, (image.height, image.width), generator=generator())
    assert 0 < crops.flip.sum() < 24
    apart = difference(apply_crops(read_image(image), crops, size), pil_crops(image, crops, size))
    assert apart.max() <= 1
    assert apart.float().mean() <= (0.05 if device_takes_bytes else 0.3)


def test_normalised_crops_are_torchvisions():
    image = load("coffee")
    views = augment_views(image, SPEC, n_views=17)
    crops = sample_crops(16, (400, 600), generator=image_generator(read_image(image)))
    want = tv.normalize(pil_crops(image, crops, SPEC.size) / 255, SPEC.mean, SPEC.std)
    apart = (views[1:] - want).abs() * torch.tensor(SPEC.std)[:, None, None] * 255
    assert apart.max() <= 1.001
    assert apart.mean() <= 0.05
    torch.testing.assert_close(views[0], preprocess(image, SPEC), rtol=0, atol=0)


def torchvision_boxes(n, size, scale, ratio):
    image = torch.empty(1, *size)
    rows = [transforms.RandomResizedCrop.get_params(image, scale, ratio) for _ in range(n)]
    return np.array(rows, dtype=float).T


def our_boxes(n, size, scale, ratio):
    crops = sample_crops(n, size, generator=generator(1), scale=scale, ratio=ratio)
    return np.stack([t.double().numpy() for t in (crops.top, crops.left, crops.height, crops.width)])


def p_values(a, b):
    """Of the four numbers of a box, and of its area and shape, that the two samples have one distribution."""
    pairs = [*zip(a, b, strict=True), (a[2] * a[3], b[2] * b[3]), (a[3] / a[2], b[3] / b[2])]
    return [scipy.stats.ks_2samp(x, y).pvalue for x, y in pairs]


@pytest.mark.parametrize("size", [(375, 500), (600, 200), (30, 47), (100, 220)])
@pytest.mark.parametrize(("scale", "ratio"), [((0.08, 1.0), (3 / 4, 4 / 3)), ((0.5, 0.9), (0.5, 1.0))])
def test_boxes_are_distributed_as_torchvisions(size, scale, ratio):
    assert min(p_values(our_boxes(4000, size, scale, ratio), torchvision_boxes(4000, size, scale, ratio))) > 0.001


@pytest.mark.parametrize("wrong", [{"scale": (0.12, 1.0)}, {"ratio": (3 / 4, 1.5)}])
def test_that_the_test_of_boxes_would_notice(wrong):
    right = {"scale": (0.08, 1.0), "ratio": (3 / 4, 4 / 3)}
    ours, theirs = our_boxes(4000, (375, 500), **{**right, **wrong}), torchvision_boxes(4000, (375, 500), **right)
    assert min(p_values(ours, theirs)) < 0.001


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
def test_a_box_as_wide_as_the_image_fits_and_lies_anywhere(size):
    crops = sample_crops(400, size, generator=generator(), scale=(0.5, 0.5), ratio=(1.0, 1.0))
    long, short = (crops.top, crops.left) if size[0] > size[1] else (crops.left, crops.top)
    assert set(crops.height.tolist()) == set(crops.width.tolist()) == {10}
    assert set(short.tolist()) == {0}
    assert set(long.tolist()) == set(range(11))


def test_a_box_outside_of_the_image_is_refused():
    zeros, fives = torch.zeros(2, dtype=torch.int64), torch.full((2,), 5)
    crops = Crops(zeros, zeros, fives, torch.tensor([5, 6]), zeros.bool())
    with pytest.raises(ValueError, match=r"apply_crops: a box ends outside of the image, which is \(5, 5\)"):
        apply_crops(torch.zeros(3, 5, 5, dtype=torch.uint8), crops, (8, 8))


# AugMix: its operations


def affine(image, *matrix):
    return image.transform(image.size, PIL.Image.Transform.AFFINE, matrix, resample=BILINEAR)


PIL_OPERATIONS = {
    "autocontrast": lambda image, _: ImageOps.autocontrast(image),
    "equalize": lambda image, _: ImageOps.equalize(image),
    "posterize": lambda image, bits: ImageOps.posterize(image, int(bits)),
    "rotate": lambda image, degrees: image.rotate(degrees, resample=BILINEAR),
    "solarize": lambda image, threshold: ImageOps.solarize(image, int(threshold)),
    "shear_x": lambda image, tangent: affine(image, 1, tangent, 0, 0, 1, 0),
    "shear_y": lambda image, tangent: affine(image, 1, 0, 0, tangent, 1, 0),
    "translate_x": lambda image, pixels: affine(image, 1, 0, int(pixels), 0, 1, 0),
    "translate_y": lambda image, pixels: affine(image, 1, 0, 0, 0, 1, int(pixels)),
}
# levels of 255 that a pixel may differ from PIL's, and the share of pixels that may differ at all. Tables and whole pixels are
# exact. Shears and rotations are interpolated in float32, PIL's in float64, and both truncate.
TOLERANCE = {"shear_x": (1, 1e-4), "shear_y": (1, 1e-4), "rotate": (1, 2e-3)}


def amounts(name, n, severity, size=(224, 224)):
    params = sample_augmix(40 * n, size, generator=generator(), severity=severity)
    return params.amount[params.operation == AugMix.NAMES.index(name)][:n]


def pil_batch(name, images, amount):
    pairs = zip(images, amount.tolist(), strict=True)
    return torch.stack([levels(PIL_OPERATIONS[name](as_pil(image), a)) for image, a in pairs])


@pytest.mark.parametrize("severity", [1, 10])
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
    for images in (
        torch.full((2, 3, 9, 9), 77, dtype=torch.uint8),
        torch.randint(0, 256, (2, 3, 1, 1), dtype=torch.uint8),
        torch.randint(0, 256, (2, 3, 31, 17), dtype=torch.uint8),
        torch.randint(0, 2, (2, 3, 17, 31), dtype=torch.uint8) * 255,
    ):
        amount = amounts(name, 2, 1, images.shape[2:])
        if name == "rotate":
            amount = torch.tensor([2.0, -1.0], dtype=torch.float64)
        assert difference(getattr(operations, name)(images, amount), pil_batch(name, images, amount)).max() <= 1


def test_operations_do_not_write_to_their_input(cut):
    before = cut.clone()
    for name in AugMix.NAMES:
        getattr(operations, name)(cut, amounts(name, len(cut), 1))
    assert cut.equal(before)


# AugMix: the whole


def pil_augmix(image, operation, amount, weight, plain, spec):
    """A view as the released code makes it, from given parameters."""

    def processed(image):
        return tv.normalize(tv.to_tensor(image), spec.mean, spec.std)

    mix = torch.zeros(3, *spec.size)
    for names, strengths, share in zip(operation.tolist(), amount.tolist(), weight.tolist(), strict=True):
        chain = image.copy()
        for name, strength in zip(names, strengths, strict=True):
            if name >= 0:
                chain = PIL_OPERATIONS[AugMix.NAMES[name]](chain, strength)
        mix += share * processed(chain)
    return plain.item() * processed(image) + (1 - plain.item()) * mix


@pytest.mark.parametrize("severity", [1, 3])
def test_augmix_is_the_released_codes(severity):
    image = load("chelsea")
    views = augment_views(image, SPEC, n_views=33, recipe="augmix", severity=severity)
    pixels = read_image(image)
    stream = image_generator(pixels)
    crops = sample_crops(32, pixels.shape[1:], generator=stream)
    params = sample_augmix(32, SPEC.size, generator=stream, severity=severity)
    rows = zip(apply_crops(pixels, crops, SPEC.size), *vars(params).values(), strict=True)
    want = torch.stack([pil_augmix(as_pil(view), *row, SPEC) for view, *row in rows])
    apart = (views[1:] - want).abs() * torch.tensor(SPEC.std)[:, None, None] * 255
    assert apart.mean() <= 0.001
    assert apart.max() <= 1.001


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


def test_convention_augmix_mixes_after_normalisation():
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


@pytest.mark.parametrize("at_once", [1, 1000])
def test_how_many_images_an_operation_takes_at_once_does_not_matter(at_once, cut, monkeypatch):
    params = sample_augmix(len(cut), (224, 224), generator=generator())
    want = apply_augmix(cut, params)
    monkeypatch.setattr(tpt_lib.views.augmix, "IN_CACHE", at_once)
    assert apply_augmix(cut, params).equal(want)


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


# reproducibility


@pytest.fixture(scope="module")
def images():
    return [load(name).resize((90 + 7 * i, 80)) for i, name in enumerate(PHOTOS)]


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


def test_convention_the_stream_is_a_hash_of_seed_shape_and_pixels():
    pixels = read_image(torch.arange(24, dtype=torch.uint8).view(3, 2, 4))
    streams = [
        image_generator(pixels),
        image_generator(pixels, 1),
        image_generator(pixels, -1),
        image_generator(pixels.flip(2)),
        image_generator(pixels.permute(0, 2, 1)),
        image_generator(pixels.permute(1, 2, 0).reshape(4, 2, 3).permute(2, 0, 1)),
    ]
    assert len({s.initial_seed() for s in streams}) == len(streams)
    assert streams[0].initial_seed() == 3637970459149736353


def test_a_seed_of_numpys(no_shape_checks):
    pixels = read_image(torch.rand(3, 4, 4))
    assert image_generator(pixels, np.int64(1)).initial_seed() == image_generator(pixels, 1).initial_seed()


class Labelled(torch.utils.data.Dataset):
    def __init__(self, images):
        self.images = images

    def __len__(self):
        return len(self.images)

    def __getitem__(self, i):
        return self.images[i], i, f"name {i}"


@pytest.mark.parametrize("workers", [0, 2])
def test_a_loader_gives_the_same_whatever_its_workers(workers, images):
    data = ViewsDataset(Labelled(images), SMALL, n_views=5, recipe="augmix", seed=generator(4))
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


# your own recipe


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


# every kind of input

GREY = np.arange(60 * 40, dtype=np.uint8).reshape(40, 60)


def grey16(mode):
    return PIL.Image.frombytes(mode, (60, 40), (GREY.astype(np.uint16) * 257).astype("<u2").tobytes())


def palette():
    image = PIL.Image.fromarray(GREY).convert("P")
    image.info["transparency"] = bytes(range(256))
    return image


@pytest.mark.parametrize("image", [
    PIL.Image.fromarray(GREY),
    PIL.Image.fromarray(GREY).convert("LA"),
    PIL.Image.merge("LA", [PIL.Image.fromarray(GREY), PIL.Image.fromarray(GREY[::-1].copy())]),
    palette(),
    PIL.Image.fromarray(GREY).convert("RGBA"),
    PIL.Image.fromarray(GREY).convert("I"),
    PIL.Image.fromarray(GREY).convert("F"),
    grey16("I;16"),
    GREY,
    np.stack([GREY] * 3 + [GREY[::-1]], axis=2),
], ids=lambda image: getattr(image, "mode", "array"))  # fmt: skip
def test_grey_in_every_form(image):
    assert read_image(image).equal(torch.from_numpy(GREY).expand(3, -1, -1))


@pytest.mark.parametrize("mode", ["1", "CMYK", "YCbCr", "HSV", "RGBX"])
def test_modes_are_converted_as_pil_does(mode, photo):
    image = photo.convert(mode)
    assert read_image(image).equal(levels(image.convert("RGB")))


def test_convention_transparency_is_dropped(photo):
    image = photo.copy()
    image.putalpha(PIL.Image.linear_gradient("L").resize(photo.size))
    assert read_image(image).equal(levels(photo))
    assert read_image(image).equal(levels(image.convert("RGB")))


def test_convention_16_bits_are_scaled(tmp_path):
    deep = np.array([[0, 128, 129, 257, 32896, 65535]], dtype=np.uint16)
    PIL.Image.fromarray(deep).save(tmp_path / "deep.png")
    assert read_image(tmp_path / "deep.png")[0].tolist() == [[0, 0, 1, 1, 128, 255]]


def test_convention_floats_are_rounded():
    image = torch.tensor([0.0, 0.5, 0.999, 1.0]).expand(3, 1, 4)
    assert read_image(image)[0].tolist() == [[0, 128, 255, 255]]


@pytest.mark.parametrize("orientation", range(1, 9))
def test_exif_orientation_is_honoured(orientation, tmp_path, photo):
    exif = PIL.Image.Exif()
    exif[0x0112] = orientation
    photo.crop((0, 0, 61, 40)).save(tmp_path / "turned.png", exif=exif)
    opened = PIL.Image.open(tmp_path / "turned.png")
    want = levels(ImageOps.exif_transpose(opened))
    assert want.shape == ((3, 61, 40) if orientation > 4 else (3, 40, 61))
    for image in (opened, tmp_path / "turned.png"):
        assert read_image(image).equal(want)
    assert opened.size == (61, 40)


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


def test_a_huge_image():
    pixels = torch.randint(0, 256, (3, 600, 800), dtype=torch.uint8)
    pixels = pixels.repeat_interleave(10, dim=1).repeat_interleave(10, dim=2)
    crops = sample_crops(3, (6000, 8000), generator=image_generator(read_image(pixels)))
    views = augment_views(pixels, SPEC, n_views=4)
    want = tv.normalize(pil_crops(as_pil(pixels), crops, SPEC.size) / 255, SPEC.mean, SPEC.std)
    assert ((views[1:] - want).abs() * torch.tensor(SPEC.std)[:, None, None] * 255).max() <= 2


def test_the_plain_view_of_a_very_long_image_is_its_middle():
    """What ``_without_ends`` cuts off, the centre crop would."""
    pixels = torch.randint(0, 256, (3, 20, 20 * 40), dtype=torch.uint8)
    spec = ImageSpec((24, 24))
    resized = tv.resize(as_pil(pixels), [24, 960], tv.InterpolationMode.BICUBIC)
    want = tv.normalize(tv.to_tensor(tv.center_crop(resized, [24, 24])), spec.mean, spec.std)
    torch.testing.assert_close(preprocess(pixels, spec), want)
    assert preprocess(pixels.mT, spec).shape == (3, 24, 24)


def test_non_square_models():
    spec = ImageSpec((48, 32))
    assert augment_views(load("rocket"), spec, n_views=4, recipe="augmix").shape == (4, 3, 48, 32)


def test_the_callers_image_is_not_written_to():
    pixels = torch.randint(0, 256, (40, 60, 3), dtype=torch.uint8).permute(2, 0, 1)
    before = pixels.clone()
    augment_views(pixels, SMALL, n_views=5, recipe="augmix")
    assert pixels.equal(before)
    floats = torch.rand(3, 40, 60, requires_grad=True)
    assert not augment_views(floats, SMALL, n_views=2).requires_grad


# errors


@pytest.fixture(scope="module")
def jpeg():
    buffer = io.BytesIO()
    load("chelsea").save(buffer, "jpeg")
    return buffer.getvalue()


def png_of(width, height):
    """A PNG that promises many pixels and holds none."""
    import struct
    import zlib

    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(b"")) + chunk(b"IEND", b"")


def test_files_that_are_no_images(tmp_path, jpeg):
    path = tmp_path / "bad.jpg"
    for content, message in [
        (b"", "cannot be opened as an image: cannot identify image file"),
        (b"no image at all", "cannot be opened as an image: cannot identify image file"),
        (jpeg[: len(jpeg) // 2], "cannot be read as RGB pixels: OSError: image file is truncated"),
        (jpeg[:600], "cannot be"),
        (png_of(60, 40), "cannot be read as RGB pixels: OSError"),
        (png_of(100_000, 100_000), "cannot be opened as an image: .*decompression bomb"),
        (png_of(12_000, 9_000), "cannot be opened as an image: .*decompression bomb"),
    ]:
        path.write_bytes(content)
        with pytest.raises(ImageError, match=rf"bad\.jpg' {message}"):
            augment_views(path, SMALL)
    with pytest.raises(ImageError, match="the image cannot be read as RGB pixels: OSError: image file is truncated"):
        augment_views(PIL.Image.open(io.BytesIO(jpeg[: len(jpeg) // 2])), SMALL)
    with pytest.raises(FileNotFoundError, match=r"missing\.jpg"):
        augment_views(tmp_path / "missing.jpg", SMALL)


def test_no_file_stays_open(tmp_path, jpeg):
    (tmp_path / "cat.jpg").write_bytes(jpeg)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        read_image(tmp_path / "cat.jpg")
    assert caught == []


@pytest.mark.parametrize(("image", "kind", "message"), [
    (torch.zeros(3, 0, 5), ImageError, "the image has no pixels: it is 0 high and 5 wide"),
    (np.zeros((4, 0, 3), np.uint8), ImageError, "the image has no pixels: it is 4 high and 0 wide"),
    (PIL.Image.new("RGB", (0, 3)), ImageError, "the image has no pixels: it is 3 high and 0 wide"),
    (torch.full((3, 4, 4), math.nan), ImageError, r"a float image must have values in \[0, 1\], but they are in nan..nan"),
    (torch.full((3, 4, 4), 1.5), ImageError, r"but they are in 1.5..1.5; divide levels of 0..255 by 255"),
    (-torch.rand(3, 4, 4), ImageError, r"and give pixels that are not normalised"),
    (np.full((4, 4, 3), np.inf), ImageError, r"but they are in inf..inf"),
    (torch.zeros(1, 4, 4), ImageError, r"must have shape \(3, H, W\), but got \(1, 4, 4\); .*\(grey.expand\(3, -1, -1\)"),
    (torch.zeros(2, 3, 4, 4), ImageError, r"must have shape \(3, H, W\), but got \(2, 3, 4, 4\); one image a call"),
    (torch.zeros(3, 4, 4, dtype=torch.bool), TypeError, r"must be uint8, or float in \[0, 1\], but got torch.bool"),
    (np.zeros((3, 4, 5), np.uint8), ImageError, r"\(H, W, 3\) or \(H, W, 4\), but got \(3, 4, 5\); colour channels last"),
    (np.zeros((4, 4, 3), np.uint16), TypeError, r"an array image must be uint8, or float in \[0, 1\], but got uint16"),
    (PIL.Image.new("I", (4, 4), 3000), ImageError, r"has PIL's mode I, .* must be in 0..255, but they are in 3000..3000"),
    (PIL.Image.new("F", (4, 4), math.nan), ImageError, r"has PIL's mode F, .* but they are in nan..nan; scale them first"),
    (PIL.Image.new("La", (4, 4)), ImageError, r"the image cannot be read as RGB pixels: ValueError: .*La"),
    (7, TypeError, "an image must be a PIL image, a tensor, an array or a path, but got int"),
    (None, TypeError, "an image must be a PIL image, a tensor, an array or a path, but got NoneType"),
])  # fmt: skip
def test_images_that_cannot_be_used(image, kind, message, no_shape_checks):
    for call in (augment_views, preprocess):
        with pytest.raises(kind, match=message):
            call(image, SMALL)


def test_an_image_error_is_a_value_error():
    assert issubclass(ImageError, ValueError)


@pytest.mark.parametrize(("options", "message"), [
    ({"n_views": 0}, "augment_views: n_views must be an int of at least 1, but got 0"),
    ({"n_views": 2.5}, "augment_views: n_views must be an int of at least 1, but got 2.5"),
    ({"recipe": "flip"}, "augment_views: recipe must be 'crop', 'augmix' or a function, but got 'flip'"),
    ({"scale": (0.0, 1.0)}, r"crops: scale must be .* 0 < low <= high <= 1, but got \(0.0, 1.0\)"),
    ({"scale": (0.5, 0.1)}, r"crops: scale must be .* but got \(0.5, 0.1\)"),
    ({"scale": (0.5, 1.1)}, r"crops: scale must be .* but got \(0.5, 1.1\)"),
    ({"ratio": (0.0, 1.0)}, r"crops: ratio must be .* 0 < low <= high, but got \(0.0, 1.0\)"),
    ({"ratio": (2.0, 1.0)}, r"crops: ratio must be .* but got \(2.0, 1.0\)"),
    ({"recipe": "augmix", "severity": 0.1}, "augmix: severity must be above 0.1 and at most 10, but got 0.1"),
    ({"recipe": "augmix", "severity": 11}, "augmix: severity must be above 0.1 and at most 10, but got 11"),
    ({"recipe": lambda *_: 3}, r"must return a tensor of shape \(63, 3, 32, 32\), but it returned int"),
    ({"recipe": lambda *_: torch.zeros(2)}, r"but it returned a tensor of shape \(2,\)"),
    ({"recipe": lambda p, s, n, g: torch.randn(n, 3, *s)}, r"float in \[0, 1\], not normalised, but it returned torch.float32"),
    ({"recipe": lambda p, s, n, g: torch.full((n, 3, *s), math.nan)}, r"torch.float32 in nan..nan"),
    ({"recipe": lambda p, s, n, g: torch.zeros(n, 3, *s).long()}, r"but it returned torch.int64 in 0..0"),
])  # fmt: skip
def test_options_that_cannot_be_used(options, message, no_shape_checks):
    with pytest.raises(ValueError, match=message):
        augment_views(torch.zeros(3, 40, 60), SMALL, **options)


def test_a_seed_that_is_none(no_shape_checks):
    with pytest.raises(TypeError, match=re.escape("seed must be an int or a torch.Generator, but got float")):
        augment_views(torch.zeros(3, 40, 60), SMALL, seed=1.5)


def test_parameters_for_other_views_are_refused():
    params = sample_augmix(3, (8, 8), generator=generator())
    with pytest.raises(ValueError, match="apply_augmix: there are 2 views, but parameters for 3"):
        apply_augmix(torch.zeros(2, 3, 8, 8, dtype=torch.uint8), params)


def test_crops_can_be_made_by_hand():
    ones = torch.ones(1, dtype=torch.int64)
    pixels = torch.arange(48, dtype=torch.uint8).view(3, 4, 4)
    got = apply_crops(pixels, Crops(ones, ones, 2 * ones, 2 * ones, ones.bool()), (2, 2))
    assert got.equal(pixels[None, :, 1:3, 1:3].flip(-1))
