"""Reading images: every kind of input, every error, and what counts as several images."""

import io
import math
import pathlib
import warnings

import numpy as np
import PIL.Image
import pytest
import torch
from PIL import ImageOps
from support.pictures import Labeled, Plain, generator, kinds, levels, load

from tpt_lib import ImageSpec
from tpt_lib.views import ImageError, augment_views, preprocess, read_image
from tpt_lib.views.reading import are_several, count_images, each_image, image_at, read_encoded

SMALL = ImageSpec((32, 32))


GRAY = np.arange(60 * 40, dtype=np.uint8).reshape(40, 60)


def gray16(mode):
    return PIL.Image.frombytes(mode, (60, 40), (GRAY.astype(np.uint16) * 257).astype("<u2").tobytes())


def transparent(image):
    image.info["transparency"] = bytes(range(256)) if image.mode == "P" else 7
    return image


def palette():
    return transparent(PIL.Image.fromarray(GRAY).convert("P"))


@pytest.mark.parametrize("image", [
    PIL.Image.fromarray(GRAY),
    PIL.Image.fromarray(GRAY).convert("LA"),
    PIL.Image.merge("LA", [PIL.Image.fromarray(GRAY), PIL.Image.fromarray(GRAY[::-1].copy())]),
    palette(),
    PIL.Image.fromarray(GRAY).convert("RGBA"),
    PIL.Image.fromarray(GRAY).convert("I"),
    PIL.Image.fromarray(GRAY).convert("F"),
    gray16("I;16"),
    transparent(gray16("I;16")),
    GRAY,
    np.stack([GRAY] * 3 + [GRAY[::-1]], axis=2),
], ids=lambda image: getattr(image, "mode", "array"))  # fmt: skip
def test_gray_in_every_form(image):
    assert read_image(image).equal(torch.from_numpy(GRAY).expand(3, -1, -1))


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


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_floats_of_any_precision_are_rounded_alike(dtype):
    image = torch.linspace(0, 1, 3000).to(dtype)
    assert read_image(image.expand(3, 1, -1))[0, 0].tolist() == [round(255 * value) for value in image.tolist()]


@pytest.mark.parametrize("orientation", range(1, 9))
def test_exif_orientation_is_honored(orientation, tmp_path, photo):
    exif = PIL.Image.Exif()
    exif[0x0112] = orientation
    photo.crop((0, 0, 61, 40)).save(tmp_path / "turned.png", exif=exif)
    opened = PIL.Image.open(tmp_path / "turned.png")
    want = levels(ImageOps.exif_transpose(opened))
    assert want.shape == ((3, 61, 40) if orientation > 4 else (3, 40, 61))
    for image in (opened, tmp_path / "turned.png"):
        assert read_image(image).equal(want)
    assert opened.size == (61, 40)


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


@pytest.mark.parametrize(
    "error", [OSError(116, "Stale file handle"), OSError(5, "Input/output error"), MemoryError("9 GB")]
)
@pytest.mark.parametrize("at", ["open", "Image.convert"])
def test_a_failure_of_the_system_is_not_one_of_the_image(tmp_path, jpeg, monkeypatch, error, at):
    def fail(*_, **__):
        raise error

    (tmp_path / "cat.jpg").write_bytes(jpeg)
    monkeypatch.setattr(f"PIL.Image.{at}", fail)
    with pytest.raises(ImageError, match=r"cat\.jpg' cannot be .*(Stale|Input/output|9 GB)") as caught:
        read_image(tmp_path / "cat.jpg")
    assert type(caught.value).__name__ == "UnreadableImageError"
    assert isinstance(caught.value, OSError)
    monkeypatch.undo()
    (tmp_path / "cat.jpg").write_bytes(jpeg[: len(jpeg) // 2])
    with pytest.raises(ImageError, match="truncated") as caught:
        read_image(tmp_path / "cat.jpg")
    assert type(caught.value) is ImageError


def test_no_file_stays_open(tmp_path, jpeg):
    (tmp_path / "cat.jpg").write_bytes(jpeg)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        read_image(tmp_path / "cat.jpg")
    assert caught == []


@pytest.mark.parametrize("array", [GRAY, np.stack([GRAY] * 3, axis=2)], ids=["gray", "rgb"])
def test_arrays_in_either_byte_order(array):
    wide = array.astype(np.float32) / 255
    assert read_image(wide.astype(">f4")).equal(read_image(wide.astype("<f4")))


@pytest.mark.parametrize(("image", "kind", "message"), [
    (torch.zeros(3, 0, 5), ImageError, "the image has no pixels: it is 0 high and 5 wide"),
    (np.zeros((4, 0, 3), np.uint8), ImageError, "the image has no pixels: it is 4 high and 0 wide"),
    (PIL.Image.new("RGB", (0, 3)), ImageError, "the image has no pixels: it is 3 high and 0 wide"),
    (torch.full((3, 4, 4), math.nan), ImageError, r"a float image must have values in \[0, 1\], but they are in nan..nan"),
    (torch.full((3, 4, 4), 1.5), ImageError, r"but they are in 1.5..1.5; divide levels of 0..255 by 255"),
    (-torch.rand(3, 4, 4), ImageError, r"and give pixels that are not normalized"),
    (np.full((4, 4, 3), np.inf), ImageError, r"but they are in inf..inf"),
    (torch.zeros(1, 4, 4), ImageError, r"must have shape \(3, H, W\), but got \(1, 4, 4\); .*\(gray.expand\(3, -1, -1\)"),
    (torch.zeros(3, 4, 4, dtype=torch.bool), TypeError, r"must be uint8, or float in \[0, 1\], but got torch.bool"),
    (np.zeros((3, 4, 5), np.uint8), ImageError, r"\(H, W, 3\) or \(H, W, 4\), but got \(3, 4, 5\); color channels last"),
    (np.zeros((4, 4, 3), np.uint16), TypeError, r"an array image must be uint8, or float in \[0, 1\], but got uint16"),
    (PIL.Image.new("I", (4, 4), 3000), ImageError, r"has PIL's mode I, .* must be in 0..255, but they are in 3000..3000"),
    (PIL.Image.new("I", (4, 4), 256), ImageError, r"must be in 0..255, but they are in 256..256"),
    (PIL.Image.new("F", (4, 4), math.nan), ImageError, r"has PIL's mode F, .* but they are in nan..nan; scale them first"),
    (PIL.Image.new("La", (4, 4)), ImageError, r"the image cannot be read as RGB pixels: ValueError: .*La"),
    (7, TypeError, "an image must be a PIL image, a tensor, an array or a path, but got int"),
    (None, TypeError, "an image must be a PIL image, a tensor, an array or a path, but got NoneType"),
])  # fmt: skip
def test_images_that_cannot_be_used(image, kind, message, no_shape_checks):
    for call in (lambda image, _: read_image(image), augment_views, preprocess):
        with pytest.raises(kind, match=message):
            call(image, SMALL)


def test_several_images_are_not_one():
    message = r"must have shape \(3, H, W\), but got \(2, 3, 4, 4\); one image per call"
    for call in (read_image, lambda images: preprocess(images, SMALL)):
        with pytest.raises(ImageError, match=message):
            call(torch.zeros(2, 3, 4, 4))


def test_an_image_error_is_a_value_error():
    assert issubclass(ImageError, ValueError)


def test_pixels_are_8_bits_with_channels_last_in_memory():
    for image in (torch.rand(3, 4, 5), np.zeros((4, 5)), PIL.Image.new("L", (5, 4))):
        pixels = read_image(image)
        assert (pixels.dtype, pixels.shape, pixels.stride()) == (torch.uint8, (3, 4, 5), (1, 15, 3))


@pytest.mark.parametrize("value", [-1e-4, -5e-5, 1 + 5e-5, 1 + 1e-4])
def test_floats_may_be_outside_by_rounding(value):
    assert read_image(torch.full((3, 2, 2), value, dtype=torch.float64)).unique().tolist() == [0 if value < 0 else 255]


@pytest.mark.parametrize("value", [-1.5e-4, 1 + 1.5e-4])
def test_floats_may_not_be_outside_by_more(value):
    with pytest.raises(ImageError, match=r"values in \[0, 1\], but they are in"):
        read_image(torch.full((3, 2, 2), value))


# several images


@pytest.fixture(scope="module")
def pixels():
    return [torch.randint(0, 256, (3, 8, 6), dtype=torch.uint8, generator=generator(i)) for i in range(3)]


@pytest.mark.parametrize("kind", kinds(torch.zeros(1, 3, 8, 6)))
def test_what_counts_as_several_images(kind, pixels):
    several = kinds(pixels)[kind]
    assert are_several(several)
    assert count_images(several) == 3
    assert image_at(several, 1).equal(pixels[1])
    assert [image.tolist() for image in each_image(several)] == [image.tolist() for image in pixels]
    one = kinds(pixels[:1])[kind]
    assert are_several(one)
    assert count_images(one) == 1
    assert next(each_image(one)).equal(pixels[0])


@pytest.mark.parametrize(
    "none", [[], (), torch.zeros(0, 3, 8, 6), Plain([])], ids=["list", "tuple", "tensor", "dataset"]
)
def test_none_of_several(none):
    assert are_several(none)
    assert count_images(none) == 0
    assert list(each_image(none)) == []


@pytest.mark.parametrize("image", [
    PIL.Image.new("RGB", (3, 4)),
    torch.zeros(3, 4, 5),
    np.zeros((4, 5)),
    np.zeros((4, 5, 3)),
    "cat.jpg",
    pathlib.Path("cat.jpg"),
], ids=lambda image: type(image).__name__)  # fmt: skip
def test_what_counts_as_one_image(image):
    assert not are_several(image)
    assert count_images(image) == 1
    (only,) = each_image(image)
    assert only is image


def test_a_dataset_is_read_when_it_is_asked(pixels):
    data = Labeled(pixels)
    images = each_image(data)
    assert data.read == []
    next(images)
    assert data.read == [0]
    list(images)
    assert data.read == [0, 1, 2]


class Stream(torch.utils.data.IterableDataset):
    def __iter__(self):
        return iter([])


@pytest.mark.parametrize(("images", "message"), [
    (torch.utils.data.DataLoader([1]), r"^a DataLoader is not a list of images: .* Pass its dataset; .* encode_views"),
    (Stream(), r"^an IterableDataset has no length and no order; pass a list of its images, list\(dataset\)$"),
], ids=["loader", "stream"])  # fmt: skip
def test_what_cannot_be_several_images(images, message):
    for call in (are_several, count_images, each_image, lambda images: augment_views(images, SMALL)):
        with pytest.raises(TypeError, match=message):
            call(images)


def test_the_bytes_of_a_file_are_read_as_the_file(tmp_path, monkeypatch):
    file = tmp_path / "1.png"
    palette().save(file)
    assert torch.equal(read_encoded(file.read_bytes(), "x"), read_image(file))
    with pytest.raises(ImageError, match=r"^x cannot be opened as an image: "):
        read_encoded(b"no image", "x")
    with pytest.raises(ImageError, match=r"^x cannot be read as RGB pixels: "):
        read_encoded(file.read_bytes()[:-40], "x")
    monkeypatch.setattr(PIL.Image, "MAX_IMAGE_PIXELS", 60 * 40 - 1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pytest.raises(ImageError, match=r"^x has 60 x 40 pixels, more than PIL.Image.MAX_IMAGE_PIXELS"):
            read_encoded(file.read_bytes(), "x")


@pytest.mark.parametrize("limit", [60 * 40, None])
def test_a_file_with_as_many_pixels_as_allowed_is_read(tmp_path, monkeypatch, limit):
    PIL.Image.fromarray(GRAY).save(tmp_path / "1.png")
    monkeypatch.setattr(PIL.Image, "MAX_IMAGE_PIXELS", limit)
    assert read_image(tmp_path / "1.png").shape == (3, 40, 60)
