"""The plain view: parity with open_clip's transform in every mode, and very long images."""

import numpy as np
import pytest
import torch
import torchvision.transforms.functional as tv
from support.pictures import as_pil, levels
from torchvision.transforms.v2 import functional as v2

from tpt_lib import ImageSpec
from tpt_lib.views import preprocess

SMALL = ImageSpec((32, 32))


def reference(image, spec):
    """open_clip's own transform."""
    import open_clip

    cfg = open_clip.transform.PreprocessCfg(
        size=spec.size,
        mean=spec.mean,
        std=spec.std,
        interpolation=spec.interpolation,
        resize_mode=spec.resize_mode,
        fill_color=spec.fill,
    )
    return open_clip.transform.image_transform_v2(cfg, is_train=False)(image)


@pytest.mark.parametrize("mode", ["shortest", "longest", "squash"])
@pytest.mark.parametrize("size", [(32, 32), (32, 48), (48, 32)])
@pytest.mark.parametrize("box", [(0, 0, 451, 300), (0, 0, 300, 300), (0, 0, 71, 300), (0, 0, 33, 47), (5, 5, 20, 18)])
def test_every_resize_mode_is_open_clips(mode, size, box, photo):
    image, spec = photo.crop(box), ImageSpec(size, resize_mode=mode, fill=7)
    torch.testing.assert_close(preprocess(image, spec), reference(image, spec), rtol=0, atol=1e-6)


@pytest.mark.parametrize("spec", [
    ImageSpec((32, 32), interpolation="bilinear"),
    ImageSpec((32, 32), mean=(0.1, 0.2, 0.3), std=(0.5, 0.6, 0.7)),
])  # fmt: skip
def test_interpolation_and_normalization_are_the_specs(spec, photo):
    torch.testing.assert_close(preprocess(photo, spec), reference(photo, spec), rtol=0, atol=1e-6)


def test_a_tensor_is_preprocessed_as_the_image_it_holds(photo):
    want = preprocess(photo, SMALL)
    assert want.dtype == torch.float32
    assert type(want) is torch.Tensor
    for image in (levels(photo), levels(photo) / 255, np.array(photo)):
        assert preprocess(image, SMALL).equal(want)
    gray = photo.convert("L")
    assert preprocess(gray, SMALL).equal(preprocess(gray.convert("RGB"), SMALL))


@pytest.mark.parametrize(("size", "resized"), [((20, 800), [24, 960]), ((800, 20), [960, 24])])
def test_the_plain_view_of_a_very_long_image_is_its_middle(size, resized):
    """What ``_without_ends`` cuts off, the center crop would."""
    pixels = torch.randint(0, 256, (3, *size), dtype=torch.uint8)
    spec = ImageSpec((24, 24))
    image = tv.resize(as_pil(pixels), resized, tv.InterpolationMode.BICUBIC)
    want = tv.normalize(tv.to_tensor(tv.center_crop(image, [24, 24])), spec.mean, spec.std)
    torch.testing.assert_close(preprocess(pixels, spec), want)


@pytest.mark.parametrize("size", [(1, 5000), (5000, 1)])
@pytest.mark.parametrize("spec", [ImageSpec((24, 24)), ImageSpec((24, 48)), ImageSpec((48, 24))])
def test_a_line_of_pixels_costs_no_memory(size, spec, monkeypatch):
    """Without the cut it would be resized to a height or width of 120 000."""
    resized, resize = [], v2.resize
    monkeypatch.setattr(
        v2, "resize", lambda image, size, **options: resized.append(size) or resize(image, size, **options)
    )
    pixels = torch.arange(5000).mul(7).remainder(251).byte().expand(3, 5000).reshape(3, *size)
    got = preprocess(pixels, spec)
    side = spec.size[size.index(1)]
    assert max(resized[0]) == side * 16 * max(spec.size) // min(spec.size)
    middle = pixels[:, 2475:2525] if size[0] > 1 else pixels[:, :, 2475:2525]
    torch.testing.assert_close(got, preprocess(middle, spec))
    assert got.std() > 0.05


def test_only_the_shortest_mode_loses_the_ends():
    pixels = torch.zeros(3, 2, 400, dtype=torch.uint8)
    pixels[:, :, :40] = 255
    for mode in ("squash", "longest"):
        assert preprocess(pixels, ImageSpec((32, 32), resize_mode=mode)).max() > 1
    assert preprocess(pixels, SMALL).max() < 0


@pytest.mark.parametrize("size", [(2, 400), (400, 2)])
def test_the_longest_mode_keeps_a_line_of_a_very_long_image(size):
    view = preprocess(torch.full((3, *size), 255, dtype=torch.uint8), ImageSpec((32, 32), resize_mode="longest"))
    white = view[0] > 0
    assert white.all(dim=size.index(400)).sum() == 1
    assert white.sum() == 32


def test_the_plain_view_is_the_same_whatever_torchs_default_is(photo):
    want = preprocess(photo, SMALL)
    torch.set_default_dtype(torch.float64)
    try:
        got = preprocess(photo, SMALL)
    finally:
        torch.set_default_dtype(torch.float32)
    assert got.equal(want)
