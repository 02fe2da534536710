"""Bad input: what came, what was wanted, what to do. (What prompts, text and methods refuse is tested with them.)"""

import re

import pytest
import torch
from support.zoo import build, open_clip_model, transformers_model
from torch import nn

import tpt_lib

pytestmark = pytest.mark.usefixtures("no_shape_checks")


@pytest.mark.parametrize(("views", "kind", "message"), [
    (torch.rand(3, 32, 32), ValueError, r"wants views of shape \(N, 3, 32, 32\), but got \(3, 32, 32\); .* \[None\] adds"),
    (torch.rand(2, 1, 32, 32), ValueError, r"wants views of shape \(N, 3, 32, 32\), but got \(2, 1, 32, 32\)"),
    (torch.rand(2, 3, 30, 32), ValueError, r"but got \(2, 3, 30, 32\); preprocess\(image, model.image_spec\) makes one"),
    (torch.zeros(2, 3, 32, 32, dtype=torch.uint8), TypeError, r"must be normalized floats, but got torch.uint8"),
    (torch.rand(2, 3, 32, 32, device="meta"), ValueError, r"the model is on cpu and the views are on meta; move the views"),
])  # fmt: skip
def test_views(views, kind, message):
    with pytest.raises(kind, match=message):
        tpt_lib.encode_views(build("open_clip-vit"), views)


def test_chunk():
    with pytest.raises(ValueError, match="chunk must be at least 1, but got 0"):
        tpt_lib.encode_views(build("open_clip-vit"), torch.rand(2, 3, 32, 32), chunk=0)


@pytest.mark.parametrize(("images", "texts", "kind", "message"), [
    (torch.ones(2, 16, dtype=torch.int64), torch.ones(3, 16), TypeError, "image_features must be a float .* torch.int64"),
    (torch.ones(2, 16), torch.ones(16), TypeError, r"text_features must be .* of shape \(16,\); encode_views and"),
    (torch.ones(2, 16), torch.ones(3, 8), ValueError, "image features have width 16 and text features 8; both must come"),
])  # fmt: skip
def test_features(images, texts, kind, message):
    with pytest.raises(kind, match=message):
        tpt_lib.class_logits(build("open_clip-vit"), images, texts)


@pytest.mark.parametrize(("image", "kind", "message"), [
    (torch.rand(1, 3, 32, 32), ValueError, r"must have shape \(3, H, W\), but got \(1, 3, 32, 32\); one image per call"),
    (torch.rand(4, 32, 32), ValueError, r"must have shape \(3, H, W\), but got \(4, 32, 32\)"),
    (torch.zeros(3, 32, 32, dtype=torch.int64), TypeError, r"must be uint8, or float in \[0, 1\], but got torch.int64"),
    (7, TypeError, "must be a PIL image, a tensor, an array or a path, but got int"),
])  # fmt: skip
def test_images(image, kind, message):
    with pytest.raises(kind, match=message):
        tpt_lib.views.preprocess(image, tpt_lib.ImageSpec((32, 32)))


@pytest.mark.parametrize(("spec", "message"), [
    ({"size": (0, 32)}, r"size must be two positive ints \(height, width\), but got \(0, 32\)"),
    ({"size": (32,)}, r"but got \(32,\)"),
    ({"std": (0.5, 0.5, 0.0)}, r"std above 0, but got .* \(0.5, 0.5, 0.0\)"),
    ({"interpolation": "cubic"}, "interpolation must be one of bicubic, bilinear, lanczos, nearest, but got 'cubic'"),
    ({"resize_mode": "crop"}, "resize_mode must be one of shortest, squash, longest, but got 'crop'"),
])  # fmt: skip
def test_image_spec(spec, message):
    with pytest.raises(ValueError, match=message):
        tpt_lib.ImageSpec(**{"size": (32, 32), **spec})


@pytest.mark.parametrize("model", [nn.Linear(2, 2), "ViT-B-16", None])
def test_an_unknown_model(model):
    message = rf"no adapter knows .*{type(model).__name__}\. Known are open_clip's .* implement the seven members"
    with pytest.raises(TypeError, match=message):
        tpt_lib.wrap(model)


def test_a_model_that_needs_its_own_tokenizer():
    with pytest.raises(
        ValueError, match="this model has 1000 tokens, CLIP's tokenizer 49408, so it needs its own; pass"
    ):
        tpt_lib.wrap(open_clip_model(text={"vocab_size": 1000}))
    with pytest.raises(TypeError, match="tokenizer must be a function from a list of texts to padded ids, but got int"):
        tpt_lib.wrap(transformers_model(), 3)


def test_a_clip_like_passes_through():
    model = build("open_clip-vit")
    assert tpt_lib.wrap(model) is model
    with pytest.raises(TypeError, match="ModuleClip is a ClipLike already and brings its own tokenizer"):
        tpt_lib.wrap(model, tokenizer=str.split)


def test_an_unknown_architecture_has_near_matches():
    with pytest.raises(ValueError, match=r"no architecture 'vit-b/17'; near matches are .*ViT-B-16") as error:
        tpt_lib.load_open_clip("vit-b/17", pretrained="openai")
    assert "open_clip.list_models() lists all" in str(error.value)


def test_weights_must_be_named():
    with pytest.raises(
        ValueError,
        match=r"pretrained is missing\. .* tags of RN50: openai, yfcc15m, cc12m.*For random weights, use wrap\(",
    ):
        tpt_lib.load_open_clip("RN50")
    with pytest.raises(ValueError, match="'laion9b' is neither a file nor a tag of RN50; its tags are openai"):
        tpt_lib.load_open_clip("RN50", pretrained="laion9b")


def test_a_checkpoint_that_does_not_fit_names_the_keys(tmp_path, monkeypatch):
    import open_clip
    from support.cases import SMALL

    monkeypatch.setitem(open_clip.factory._MODEL_CONFIGS, "small", SMALL)
    weights = open_clip.create_model("small").state_dict()
    weights["extra.weight"] = torch.zeros(1)
    weights["ln_final.bias"] = torch.zeros(3)
    del weights["text_projection"]
    torch.save(weights, tmp_path / "odd.pt")
    with pytest.raises(ValueError, match=r"the weights '.*odd\.pt' do not fit 'small'") as error:
        tpt_lib.load_open_clip("small", pretrained=tmp_path / "odd.pt")
    for key in ("extra.weight", "text_projection", "ln_final.bias"):
        assert re.search(key, str(error.value))
