"""Image features: chunks and leading dimensions change nothing, every kind of several images, every error."""

import dataclasses
import re

import numpy as np
import PIL.Image
import pytest
import torch
import torch.nn.functional as F
from support.cases import model_of
from support.pictures import generator, kinds

import tpt_lib
from tpt_lib import encode_images, encode_views
from tpt_lib.features.encode import as_features, default_chunk, device_of
from tpt_lib.views import preprocess


def pictures(n=5, size=(40, 56)):
    return [torch.randint(0, 256, (3, *size), dtype=torch.uint8, generator=generator(i)) for i in range(n)]


def plain(images):
    """The features of preprocessed images, one at a time, by the model's own function."""
    model = model_of()
    with torch.no_grad():
        rows = [model.module.encode_image(preprocess(image, model.image_spec)[None]) for image in images]
    return F.normalize(torch.cat(rows), dim=-1)


# views


def test_views_become_unit_features_of_the_model():
    model, views = model_of(), torch.randn(5, 3, 32, 32)
    features = encode_views(model, views)
    with torch.no_grad():
        want = model.module.encode_image(views)
    assert (want.norm(dim=-1) - 1).abs().min() > 0.01  # so that normalizing is seen
    torch.testing.assert_close(features, want / want.norm(dim=-1, keepdim=True), rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(features.norm(dim=-1), torch.ones(5), rtol=0, atol=1e-6)
    assert (features.shape, features.dtype) == ((5, 16), torch.float32)


@pytest.mark.parametrize("lead", [(1,), (6,), (2, 3), (2, 1, 3)])
def test_leading_dimensions_are_kept(lead):
    model = model_of()
    flat = torch.randn(6, 3, 32, 32)[: torch.Size(lead).numel()]
    got = encode_views(model, flat.view(*lead, 3, 32, 32))
    assert got.shape == (*lead, 16)
    assert got.flatten(0, -2).equal(encode_views(model, flat))


@pytest.mark.parametrize("chunk", [1, 2, 3, 7, 8, 100])
def test_chunks_change_nothing(chunk):
    model, views = model_of(), torch.randn(7, 3, 32, 32)
    torch.testing.assert_close(encode_views(model, views, chunk=chunk), encode_views(model, views), rtol=0, atol=1e-6)


@dataclasses.dataclass
class Counting:
    """A model that notes how many views it is given, and returns their mean color."""

    image_spec: tpt_lib.ImageSpec
    seen: list = dataclasses.field(default_factory=list)
    device: str = "cpu"
    logit_scale = 1.0
    logit_bias = 0.0

    def tokenize(self, texts):
        return torch.zeros(len(texts), 4, dtype=torch.int64)

    def embed_tokens(self, ids):
        return torch.zeros(*ids.shape, 8, device=self.device)

    def encode_image(self, pixels):
        self.seen.append(len(pixels))
        return pixels.mean(dim=(2, 3))

    def encode_embeddings(self, *_):
        raise AssertionError


@pytest.mark.parametrize(("size", "chunk", "seen"), [
    ((32, 32), None, [64, 6]),
    ((128, 128), None, [24, 24, 22]),
    ((112, 225), None, [15, 15, 15, 15, 10]),
    ((128, 224), None, [14] * 5),
    ((224, 128), None, [14] * 5),
    ((224, 224), None, [8] * 8 + [6]),
    ((336, 336), None, [8] * 8 + [6]),
    ((32, 32), 30, [30, 30, 10]),
    ((336, 336), 70, [70]),
])  # fmt: skip
def test_the_default_chunk_suits_a_cpus_caches(size, chunk, seen):
    model = Counting(tpt_lib.ImageSpec(size))
    assert encode_views(model, torch.rand(70, 3, 1, 1).expand(70, 3, *size), chunk=chunk).shape == (70, 3)
    assert model.seen == seen


def test_the_default_chunk_does_not_depend_on_leading_dimensions():
    assert default_chunk(torch.empty(1).expand(2, 9, 3, 128, 128)) == 24


def test_the_default_chunk_of_other_devices_is_64():
    model = Counting(tpt_lib.ImageSpec((336, 336)))
    encode_views(model, torch.rand(70, 3, 336, 336, device="meta"))
    assert model.seen == [64, 6]


def test_features_have_no_gradient_and_can_enter_autograd():
    model, views = model_of(), torch.randn(2, 3, 32, 32, requires_grad=True)
    features = encode_views(model, views)
    assert not features.requires_grad
    with torch.inference_mode():
        features = encode_views(model, torch.randn(2, 3, 32, 32))
    assert not features.is_inference()
    torch.ones(16, requires_grad=True).mul(features).sum().backward()


def test_features_of_a_half_precision_tower_are_normalized_in_float32():
    class Half(Counting):
        def encode_image(self, pixels):
            return super().encode_image(pixels).half()

    views = torch.rand(4, 3, 8, 8)
    features = encode_views(Half(tpt_lib.ImageSpec((8, 8))), views)
    want = views.mean(dim=(2, 3)).half().double()
    torch.testing.assert_close(features.double(), want / want.norm(dim=-1, keepdim=True), rtol=0, atol=1e-6)
    assert features.dtype == torch.float32


@pytest.mark.parametrize(("views", "kind", "message"), [
    (torch.rand(3, 32, 32), ValueError, r"wants views of shape (N, 3, 32, 32), but got (3, 32, 32)"),
    (torch.rand(3, 32, 32), ValueError, r"[None] adds the batch dimension"),
    (torch.rand(2, 1, 32, 32), ValueError, r"wants views of shape (N, 3, 32, 32), but got (2, 1, 32, 32)"),
    (torch.rand(2, 3, 30, 32), ValueError, r"but got (2, 3, 30, 32); preprocess(image, model.image_spec) makes one"),
    (torch.rand(2, 3, 32, 30), ValueError, r"but got (2, 3, 32, 30)"),
    (torch.rand(2, 4, 3, 32, 30), ValueError, r"but got (2, 4, 3, 32, 30)"),
    (torch.rand(0, 3, 32, 32), ValueError, r"there are no views in a tensor of shape (0, 3, 32, 32); at least one is needed"),
    (torch.rand(2, 0, 3, 32, 32), ValueError, r"there are no views in a tensor of shape (2, 0, 3, 32, 32)"),
    (torch.zeros(2, 3, 32, 32, dtype=torch.uint8), TypeError, r"views must be normalized floats, but got torch.uint8"),
    (torch.rand(2, 3, 32, 32, device="meta"), ValueError, r"model is on cpu and the views are on meta; move the views with "
                                                          r"views.to('cpu')"),
])  # fmt: skip
def test_views_that_cannot_be_encoded(views, kind, message, no_shape_checks):
    with pytest.raises(kind, match=f"^encode_views: .*{re.escape(message)}"):
        encode_views(model_of(), views)


@pytest.mark.usefixtures("no_shape_checks")
def test_what_is_no_model_and_what_are_no_views():
    with pytest.raises(
        TypeError, match=r"^encode_views: model must be a ClipLike, but got object, which lacks image_spec"
    ):
        encode_views(object(), torch.rand(2, 3, 32, 32))
    with pytest.raises(TypeError, match=r"^encode_views: views must be a tensor \(N, 3, 32, 32\), but got list"):
        encode_views(model_of(), [torch.rand(3, 32, 32)])


@pytest.mark.parametrize("chunk", [0, -1])
def test_a_chunk_that_cannot_be_used(chunk):
    with pytest.raises(ValueError, match=f"^encode_views: chunk must be at least 1, but got {chunk}"):
        encode_views(model_of(), torch.rand(2, 3, 32, 32), chunk=chunk)
    with pytest.raises(ValueError, match=f"^encode_images: chunk must be at least 1, but got {chunk}"):
        encode_images(model_of(), pictures(1), chunk=chunk)


# images


@pytest.mark.parametrize("kind", kinds(torch.zeros(1, 3, 8, 6)))
@pytest.mark.parametrize("chunk", [1, 2, 5, 64])
def test_images_are_encoded_as_their_plain_views_are(kind, chunk):
    images = pictures()
    got = encode_images(model_of(), kinds(images)[kind], chunk=chunk)
    assert got.shape == (5, 16)
    torch.testing.assert_close(got, plain(images), rtol=0, atol=1e-6)
    assert (got[:-1] - got[1:]).abs().amax(dim=1).min() > 1e-3  # each row is another image


def test_images_of_different_sizes_and_kinds(tmp_path):
    pixels = pictures(1)[0]
    arrays = pixels.permute(1, 2, 0).numpy()
    PIL.Image.fromarray(arrays).save(tmp_path / "cat.png")
    same = [pixels, pixels / 255, arrays, PIL.Image.fromarray(arrays), tmp_path / "cat.png", str(tmp_path / "cat.png")]
    images = [*same, torch.rand(3, 90, 33), np.zeros((20, 30), np.uint8)]
    got = encode_images(model_of(), images)
    torch.testing.assert_close(got, plain(images), rtol=0, atol=1e-6)
    torch.testing.assert_close(got[:6], got[:1].expand(6, -1), rtol=0, atol=1e-6)


def test_one_image_has_one_row():
    (image,) = pictures(1)
    got = encode_images(model_of(), image)
    assert got.shape == (1, 16)
    assert got.equal(encode_images(model_of(), [image]))


def test_few_images_are_in_memory_at_the_same_time():
    images, read_so_far = kinds(pictures(5))["dataset"], []

    class Watching(Counting):
        def encode_image(self, pixels):
            read_so_far.append(len(images.read))
            return super().encode_image(pixels)

    encode_images(Watching(tpt_lib.ImageSpec((8, 8))), images, chunk=2)
    assert read_so_far == [2, 4, 5]


def test_64_images_are_in_memory_by_default():
    model = Counting(tpt_lib.ImageSpec((8, 8)))
    encode_images(model, torch.rand(1, 3, 2, 2).expand(70, 3, 2, 2))
    assert model.seen == [64, 6]


@pytest.mark.parametrize("none", [[], (), torch.zeros(0, 3, 8, 6)], ids=["list", "tuple", "tensor"])
def test_no_images(none):
    with pytest.raises(ValueError, match=r"^encode_images: there are no images; at least one is needed$"):
        encode_images(model_of(), none)


def test_features_are_not_images():
    with pytest.raises(ValueError, match=r"^encode_images: a tensor of shape \(5, 16\) holds no images") as caught:
        encode_images(model_of(), torch.rand(5, 16))
    assert "which are (3, H, W) or (N, 3, H, W); features (N, E) are encoded already: pass them on" in str(caught.value)


def test_a_loader_is_not_images():
    with pytest.raises(TypeError, match=r"^a DataLoader is not a list of images: .*Pass its dataset"):
        encode_images(model_of(), torch.utils.data.DataLoader(pictures()))


# images or features


def test_images_or_features():
    images, features = pictures(), torch.randn(5, 16, requires_grad=True)
    assert as_features("bongard_tpt", model_of(), images).equal(encode_images(model_of(), images))
    assert as_features("bongard_tpt", model_of(), images[0]).equal(encode_images(model_of(), images[:1]))
    for given in (features, features.double(), features / 100):
        got = as_features("bongard_tpt", model_of(), given)
        assert (got.dtype, got.requires_grad) == (torch.float32, False)
        torch.testing.assert_close(got, (given / given.norm(dim=1, keepdim=True)).float().detach())


def test_features_go_to_the_models_device():
    model = Counting(tpt_lib.ImageSpec((8, 8)), device="meta")
    assert as_features("bongard_tpt", model, torch.rand(2, 3)).device.type == "meta"
    assert encode_images(model, torch.rand(2, 3, 9, 9)).device.type == "meta"


@pytest.mark.parametrize("features", [
    torch.ones(2, 16, dtype=torch.int64),
    torch.tensor([[1.0, float("nan")]]),
    torch.tensor([[1.0, 2.0], [3.0, float("inf")]]),
    torch.tensor([[1.0, 2.0], [0.0, 0.0]]),
])  # fmt: skip
def test_features_that_cannot_be_used(features):
    with pytest.raises(
        ValueError, match=r"^bongard_tpt: features \(N, E\) must be finite floats and none of them zero, but got "
    ):
        as_features("bongard_tpt", model_of(), features)


def test_images_whose_features_cannot_be_used():
    class Blind(Counting):
        def encode_image(self, pixels):
            return torch.zeros(len(pixels), 3)

    with pytest.raises(ValueError, match=r"^bongard_tpt: encoded images must have unit length"):
        as_features("bongard_tpt", Blind(tpt_lib.ImageSpec((8, 8))), pictures(2))


def test_the_device_of_a_model_is_where_its_embeddings_are():
    assert device_of(Counting(tpt_lib.ImageSpec((8, 8)), device="meta")) == torch.device("meta")
    assert device_of(model_of()) == torch.device("cpu")
