"""Features of unit length pass in every precision; others are refused with what they are, in one look at the device."""

import pytest
import torch
from support.cases import model_of
from support.prompting import unit, words
from torch.utils._python_dispatch import TorchDispatchMode

import tpt_lib
from tpt_lib.features.check import check_unit
from tpt_lib.methods import get_method, prompt_ensemble_predict

OF_FEATURES = [name for name in tpt_lib.list_methods() if get_method(name).needs == ("features",)]


class Looks(TorchDispatchMode):
    """Counts how often Python waits for a value."""

    count = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        self.count += function.overloadpacket.__name__ in ("_local_scalar_dense", "is_nonzero", "nonzero")
        return function(*args, **(kwargs or {}))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("shape", [(1, 2), (5, 16), (2, 3, 1024)])
def test_unit_length_in_every_precision(dtype, shape):
    check_unit("f", "features", unit(*shape).to(dtype))


def test_one_look_at_the_device():
    with Looks() as seen:
        check_unit("f", "features", unit(5, 16))
    assert seen.count == 1


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_what_is_not_finite(value):
    features = unit(2, 3, 16)
    features[1, 2, 3] = value
    with pytest.raises(
        ValueError, match=r"^f: features are not all finite; look at the image, or at the model's towers"
    ):
        check_unit("f", "features", features)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
@pytest.mark.parametrize("factor", [0.0, 0.985, 1.015, 100.0])
def test_another_length(dtype, factor):
    features = unit(4, 16)
    features[3] *= factor
    with pytest.raises(
        ValueError, match=r"^f: features must have unit length, but their lengths are .*; normalize them"
    ):
        check_unit("f", "features", features.to(dtype))


def test_lengths_are_computed_in_float32():
    """In bfloat16 this length would be rounded from 1.0115 to 1.0078."""
    with pytest.raises(ValueError, match=r"lengths are 1\.01 to 1\.01"):
        check_unit("f", "features", torch.tensor([[1.0078125, 0.0864]]).bfloat16())


@pytest.mark.parametrize("method", OF_FEATURES)
@pytest.mark.parametrize("batch", [(), (2,)])
def test_every_method_refuses_raw_features(method, batch):
    with pytest.raises(ValueError, match=r"features must have unit length, but their lengths are 5 to 5"):
        get_method(method).predict(model_of(), words(), 5 * unit(*batch, 4, 16))


def test_an_ensemble_refuses_raw_features():
    with pytest.raises(ValueError, match=r"zero_shot_predict: features must have unit length"):
        prompt_ensemble_predict(model_of(), [words(), words()], 5 * unit(4, 16))


class Odd:
    """A model whose image tower returns something of its own."""

    def __init__(self, found):
        self.model, self.found = model_of(), found

    def __getattr__(self, name):
        return getattr(self.model, name)

    def encode_image(self, pixels):
        return self.found(pixels)


@pytest.mark.usefixtures("no_shape_checks")
@pytest.mark.parametrize(("found", "got"), [
    (lambda pixels: torch.ones(len(pixels) + 1, 16), r"torch.float32 of shape \(6, 16\)"),
    (lambda pixels: torch.ones(1, 16), r"torch.float32 of shape \(1, 16\)"),
    (lambda pixels: torch.ones(16), r"torch.float32 of shape \(16,\)"),
    (lambda pixels: torch.ones(len(pixels), 7, 16), r"torch.float32 of shape \(5, 7, 16\)"),
    (lambda pixels: torch.ones(len(pixels), 16).long(), r"torch.int64 of shape \(5, 16\)"),
    (lambda pixels: (torch.ones(len(pixels), 16),), "tuple"),
])  # fmt: skip
def test_what_an_image_tower_must_return(found, got):
    model = Odd(found)
    wanted = (
        r"^encode_views: encode_image of the model must return a float tensor with a row for each input, \(5, E\), but"
    )
    with pytest.raises(TypeError, match=f"{wanted} it returned {got}$"):
        tpt_lib.encode_views(model, torch.rand(5, 3, *model.image_spec.size))


@pytest.mark.parametrize("value", [0.0, float("nan")])
def test_an_image_tower_that_returns_nothing_usable(value):
    model = Odd(lambda pixels: torch.full((len(pixels), 16), value))
    prompts = tpt_lib.class_prompts(model, ["cat", "dog"])
    image = torch.rand(3, 40, 50)
    with pytest.raises(ValueError, match=r"zero_shot_predict: features (are not all finite|must have unit length)"):
        tpt_lib.classify(model, image, prompts, method="zero_shot", n_views=2)
    with pytest.raises(ValueError, match=r"bongard_tpt: encoded images (are not all finite|must have unit length)"):
        tpt_lib.bongard_tpt(model, [image], [image], [image])
