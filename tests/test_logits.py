"""Logits against the equation in float64, and what is refused."""

import pytest
import torch
import torch.nn.functional as F
from support.letters import Letters
from support.zoo import fresh

from tpt_lib import class_logits
from tpt_lib.logits import unchecked_logits


def features(*shape, seed=0):
    return F.normalize(torch.randn(*shape, generator=torch.Generator().manual_seed(seed)), dim=-1)


@pytest.mark.parametrize("name", ["open_clip-vit", "open_clip-custom-text", "open_clip-siglip"])
@pytest.mark.parametrize("batch", [(), (2,), (2, 3)])
def test_logits_are_scaled_cosines_plus_the_bias(name, batch):
    module = (model := fresh(name)).module
    images, text = features(*batch, 4, 16), features(*batch, 5, 16, seed=1)
    scale = module.logit_scale.double().exp()
    bias = getattr(module, "logit_bias", None)
    want = scale * torch.einsum("...ne,...ke->...nk", images.double(), text.double())
    want = want + (0 if bias is None else bias.double())
    got = class_logits(model, images, text)
    assert got.shape == (*batch, 4, 5)
    assert (got.double() - want).abs().max() <= 1e-5
    assert not got.requires_grad


@pytest.mark.parametrize(("images", "text"), [((3,), (1,)), ((1,), (3,)), ((2, 3), ()), ((), (2, 3)), ((2, 3), (3,))])
def test_leading_dimensions_are_broadcast(images, text):
    found = unchecked_logits(Letters(), features(*images, 4, 6), features(*text, 5, 6, seed=1))
    batch = torch.broadcast_shapes(images, text)
    left = features(*images, 4, 6).expand(*batch, 4, 6)
    right = features(*text, 5, 6, seed=1).expand(*batch, 5, 6)
    torch.testing.assert_close(found, 10 * torch.einsum("...ne,...ke->...nk", left, right))


def test_some_of_these_models_have_a_bias():
    assert float(fresh("open_clip-siglip").logit_bias) == -10
    assert float(fresh("open_clip-custom-text").logit_bias) == -1


def test_a_scale_that_is_a_number():
    images, text = features(4, 6), features(5, 6, seed=1)
    torch.testing.assert_close(class_logits(Letters(), images, text), 10 * images @ text.T)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_float32_also_for_half_precision_and_under_autocast(dtype):
    model, images, text = fresh("open_clip-vit"), features(4, 16).to(dtype), features(5, 16, seed=1).to(dtype)
    want = class_logits(model, images.float(), text.float())
    assert torch.equal(class_logits(model, images, text), want)
    with torch.autocast("cpu", dtype=dtype):
        assert torch.equal(class_logits(model, images.float(), text.float()), want)


def test_gradients_reach_the_features_and_not_the_scale():
    model = fresh("open_clip-vit")
    images, text = features(4, 16), features(5, 16, seed=1).requires_grad_()
    (gradient,) = torch.autograd.grad(class_logits(model, images, text)[0, 2], text)
    torch.testing.assert_close(gradient[2], model.logit_scale * images[0])
    assert gradient[[0, 1, 3, 4]].abs().max() == 0
    assert model.module.logit_scale.grad is None


@pytest.mark.usefixtures("no_shape_checks")
@pytest.mark.parametrize(("images", "text", "kind", "message"), [
    (torch.ones(16), torch.ones(5, 16), TypeError,
     r"image_features must be a float tensor of at least two dimensions, but got torch.float32 of shape \(16,\)"),
    (torch.ones(4, 16), torch.ones(16), TypeError, r"text_features must be a float tensor .* of shape \(16,\)"),
    (torch.ones(4, 16).long(), torch.ones(5, 16), TypeError, "image_features must be a float tensor .* torch.int64"),
    (torch.ones(4, 15), torch.ones(5, 16), ValueError, "image features have width 15 and text features 16"),
    (torch.eye(16)[:4] / 2, torch.eye(16)[:5], ValueError, "image_features must have unit length, .* lengths are 0.5 to 0.5"),
    (torch.eye(16)[:4], 3 * torch.eye(16)[:5], ValueError, "text_features must have unit length, .* lengths are 3 to 3"),
    (torch.eye(16)[:4] * torch.nan, torch.eye(16)[:5], ValueError, "image_features are not all finite"),
    (torch.zeros(4, 16), torch.eye(16)[:5], ValueError, "image_features must have unit length, .* 0 to 0"),
    (torch.eye(16).expand(2, 16, 16), torch.eye(16).expand(3, 16, 16), ValueError,
     r"image features have batch shape \(2,\) and text features \(3,\); both must have the same leading dimensions"),
    (torch.eye(16).expand(2, 5, 16, 16), torch.eye(16).expand(3, 5, 16, 16), ValueError, r".* shape \(2, 5\) and .* \(3, 5\)"),
    (torch.eye(16).expand(5, 16, 16), torch.eye(16).expand(3, 2, 16, 16), ValueError, r".* shape \(5,\) and .* \(3, 2\)"),
])  # fmt: skip
def test_bad_input(images, text, kind, message):
    with pytest.raises(kind, match=f"^class_logits: {message}"):
        class_logits(fresh("open_clip-vit"), images, text)
