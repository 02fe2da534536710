"""Load and wrap open_clip models. (What every model must do is in conformance/test_models.)"""

import json
import pickle

import pytest
import torch
from support.cases import SMALL
from support.marking import slow_but
from support.zoo import VISION, build, clip_tokenizer, open_clip_model

import tpt_lib

TEXTS = ["a photo of a cat.", "a photo of a red panda.", "kite"]


def text_features(model):
    ids = model.tokenize(TEXTS)
    with torch.no_grad():
        return model.encode_embeddings(model.embed_tokens(ids), ids)


@pytest.fixture
def small_open_clip(tmp_path, monkeypatch):
    """A small architecture in open_clip's registry under the name ``small``, and a checkpoint of it."""
    import open_clip

    monkeypatch.setitem(open_clip.factory._MODEL_CONFIGS, "small", SMALL)
    monkeypatch.setitem(open_clip.factory._MODEL_CONFIGS, "small-quick", {**SMALL, "quick_gelu": True})
    module = open_clip.create_model("small")
    torch.save({"state_dict": module.state_dict()}, tmp_path / "small.pt")
    return module.eval(), tmp_path / "small.pt"


@pytest.mark.parametrize("suffix", [".pt", ".safetensors"])
def test_load_from_a_file(small_open_clip, suffix):
    import safetensors.torch

    module, path = small_open_clip
    safetensors.torch.save_file(module.state_dict(), path.with_suffix(".safetensors"))
    model = tpt_lib.load_open_clip("small", pretrained=path.with_suffix(suffix))
    with torch.no_grad():
        torch.testing.assert_close(text_features(model), module.encode_text(model.tokenize(TEXTS)))
    assert repr(model) == f"<small small{suffix} as ClipLike, images (32, 32)>"
    torch.testing.assert_close(text_features(pickle.loads(pickle.dumps(model))), text_features(model))


def test_load_from_a_folder(small_open_clip):
    module, path = small_open_clip
    path.rename(path.with_name("open_clip_pytorch_model.bin"))
    preprocess = {"mean": [0.5, 0.5, 0.5], "std": [0.5, 0.5, 0.5], "resize_mode": "squash"}
    config = {"model_cfg": SMALL, "preprocess_cfg": preprocess}
    path.with_name("open_clip_config.json").write_text(json.dumps(config))
    model = tpt_lib.load_open_clip(f"local-dir:{path.parent}")
    assert model.image_spec == tpt_lib.ImageSpec((32, 32), (0.5,) * 3, (0.5,) * 3, resize_mode="squash")
    with torch.no_grad():
        torch.testing.assert_close(text_features(model), module.encode_text(model.tokenize(TEXTS)))


@pytest.mark.parametrize(("name", "tag", "asked", "quick"), [
    ("small", {"quick_gelu": True}, None, True),
    ("small", {}, None, False),
    ("small-quick", {"quick_gelu": True}, None, True),
    ("small-quick", {}, False, False),
    ("small-quick", {}, True, True),
])  # fmt: skip
def test_the_tag_decides_on_quick_gelu(small_open_clip, monkeypatch, name, tag, asked, quick):
    import open_clip

    monkeypatch.setitem(open_clip.pretrained._PRETRAINED, name, {"tag": {"mean": (0.1, 0.2, 0.3), **tag}})
    monkeypatch.setattr(open_clip.factory, "download_pretrained", lambda *_, **__: str(small_open_clip[1]))
    model = tpt_lib.load_open_clip(name, pretrained="tag", quick_gelu=asked)
    kinds = {type(m).__name__ for m in model.module.modules()}
    assert ("QuickGELU" in kinds, "GELU" in kinds) == (quick, not quick)
    assert model.image_spec.mean == (0.1, 0.2, 0.3)


def test_a_tag_that_contradicts_its_architecture_is_refused(small_open_clip, monkeypatch):
    import open_clip

    monkeypatch.setitem(open_clip.pretrained._PRETRAINED, "small-quick", {"tag": {}})
    message = (
        "'small-quick' has QuickGELU and the tag 'tag' is registered without it; pass quick_gelu=True or quick_gelu="
    )
    with pytest.raises(ValueError, match=message):
        tpt_lib.load_open_clip("small-quick", pretrained="tag")


def test_openai_weights_get_quick_gelu():
    from tpt_lib.models.open_clip_weights import activation

    assert activation("ViT-B-16", "openai", None) is True
    assert activation("ViT-B-16", "laion2b_s34b_b88k", None) is False


def unreachable(*_, **__):
    try:
        raise ConnectionRefusedError("no route to host.")
    except ConnectionRefusedError as error:
        raise FileNotFoundError("Failed to download file. Last error: …") from error  # as open_clip does


@pytest.mark.parametrize(
    ("arguments", "what", "instead"),
    [
        (
            ("ViT-B-16", "openai"),
            "the weights 'openai' of 'ViT-B-16', from timm/vit_base_patch16_clip_224.openai,",
            "download them elsewhere and pass pretrained=FILE, quick_gelu=True.",
        ),
        (
            ("ViT-B-16-SigLIP", "webli"),
            "the weights 'webli' of 'ViT-B-16-SigLIP', from timm/ViT-B-16-SigLIP,",
            "download them elsewhere and pass pretrained=FILE, image_spec=….",
        ),
        (("hf-hub:some/model",), "'hf-hub:some/model'", "download it elsewhere and pass 'local-dir:FOLDER'."),
    ],
    ids=["openai", "siglip", "hub"],
)
def test_weights_that_cannot_be_fetched(monkeypatch, arguments, what, instead):
    for name in ("download_pretrained", "download_pretrained_from_hf"):
        monkeypatch.setattr(f"open_clip.factory.{name}", unreachable)
    with pytest.raises(ConnectionError) as caught:
        tpt_lib.load_open_clip(*arguments)
    assert str(caught.value) == (
        f"load_open_clip: {what} could not be fetched (no route to host). Connect to the network, or {instead} load_tiny() "
        "loads a small model without a download"
    )


def test_a_tokenizer_that_cannot_be_fetched(small_open_clip, monkeypatch):
    _, path = small_open_clip
    monkeypatch.setattr("open_clip.get_tokenizer", unreachable)
    with pytest.raises(ConnectionError, match=r"tokenizer of 'small' could not be fetched \(no route.*pass tokenizer="):
        tpt_lib.load_open_clip("small", path)
    assert tpt_lib.load_open_clip("small", path, tokenizer=clip_tokenizer()).name == "small small.pt"


def test_other_errors_of_open_clip_are_passed_on(small_open_clip, monkeypatch):
    def broken(*_, **__):
        raise RuntimeError("the checksum does not match")

    monkeypatch.setattr("open_clip.factory.download_pretrained", broken)
    with pytest.raises(RuntimeError, match="checksum"):
        tpt_lib.load_open_clip("ViT-B-16", "openai")
    monkeypatch.setattr("open_clip.create_model", lambda *_, **__: unreachable())
    with pytest.raises(FileNotFoundError, match="Last error"):
        tpt_lib.load_open_clip("small", small_open_clip[1])


def test_mixed_precision():
    from open_clip.model import convert_weights_to_fp16

    full, mixed = open_clip_model(), open_clip_model()
    convert_weights_to_fp16(mixed)
    full.load_state_dict(mixed.state_dict())
    assert mixed.positional_embedding.dtype == torch.float32
    assert mixed.visual.conv1.weight.dtype == torch.float16
    views = torch.randn(2, 3, 32, 32)
    got, want = (tpt_lib.encode_views(tpt_lib.wrap(module), views) for module in (mixed, full))
    torch.testing.assert_close(got, want, rtol=0, atol=1e-3)
    assert (want[0] - want[1]).abs().max() > 0.05


def test_a_transformers_tower_is_tokenized_to_77(monkeypatch):
    import open_clip
    import transformers

    config = transformers.MT5Config(vocab_size=49408, d_model=32, d_ff=32, d_kv=8, num_layers=1, num_heads=4)
    monkeypatch.setattr(open_clip.hf_model.AutoConfig, "from_pretrained", lambda _: config)
    module = open_clip.CustomTextCLIP(
        16, vision_cfg=VISION, text_cfg={"hf_model_name": "mt5", "hf_model_pretrained": False}
    )
    assert module.text.context_length == 0
    model = tpt_lib.wrap(module, clip_tokenizer())
    assert model.tokenize(TEXTS).equal(build("transformers-clip-own-tokenizer").tokenize(TEXTS))
    with torch.no_grad():
        want = module.eval().encode_text(model.tokenize(TEXTS))
    torch.testing.assert_close(text_features(model), want, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    "name", slow_but(["ViT-B-16"], ["ViT-B-16", "RN50", "coca_ViT-B-32", "EVA02-B-16", "MobileCLIP-S1"])
)
def test_the_tokenizers_of_clip_architectures_can_be_pickled(name):
    import open_clip

    tokenizer = open_clip.get_tokenizer(name)
    assert pickle.loads(pickle.dumps(tokenizer))(TEXTS).equal(tokenizer(TEXTS))


@pytest.mark.parametrize("box", [(0, 0, 451, 300), (100, 0, 300, 300), (0, 0, 33, 47)])
def test_preprocessing_is_the_models_own(box, photo):
    import open_clip

    image = photo.crop(box)
    own = open_clip.transform.image_transform_v2(open_clip.transform.PreprocessCfg(size=32), is_train=False)
    got = tpt_lib.views.preprocess(image, build("open_clip-vit").image_spec)
    torch.testing.assert_close(got, own(image), rtol=0, atol=1e-6)
