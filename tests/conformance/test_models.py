"""The conformance suite: what every adapter must do, over every kind of model the library wraps."""

import copy
import dataclasses
import math

import numpy as np
import pytest
import torch
from support.cases import SMALL
from support.zoo import VISION, ZOO, build, clip_tokenizer, fresh, open_clip_model, transformers_model
from torch import nn

import tpt_lib

TEXTS = ["a photo of a cat.", "a photo of a red panda.", "kite"]


def own_text_features(module, ids):
    if hasattr(module, "encode_text"):
        features = module.encode_text(ids)
        return module.encode_text(ids, normalize=False) if "CoCa" in type(module).__name__ else features
    pad = module.config.text_config.pad_token_id
    mask = {"attention_mask": (ids != pad).long()} if type(module).__name__.startswith(("Chinese", "Alt")) else {}
    output = module.get_text_features(input_ids=ids, **mask)
    return output if isinstance(output, torch.Tensor) else output.pooler_output


def state(module):
    """All of a module that a caller could see changed."""
    hooks = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks")
    return {
        "tensors": {
            k: (v.clone(), v._version, id(v)) for k, v in [*module.named_parameters(), *module.named_buffers()]
        },
        "flags": [(p.requires_grad, p.grad is None) for p in module.parameters()],
        "modes": [m.training for m in module.modules()],
        "hooks": [len(getattr(m, h)) for m in module.modules() for h in hooks],
        "modules": [(name, id(m), sorted(vars(m))) for name, m in module.named_modules()],
    }


def assert_unchanged(before, module):
    after = state(module)
    for key, (value, version, identity) in before.pop("tensors").items():
        now, now_version, now_identity = after["tensors"][key]
        assert torch.equal(value.reshape(-1).view(torch.uint8), now.reshape(-1).view(torch.uint8)), key
        assert (version, identity) == (now_version, now_identity), key
    after.pop("tensors")
    assert before == after


@pytest.mark.parametrize("name", ZOO)
def test_text_features_are_the_models_own(name):
    model = build(name)
    ids = model.tokenize(TEXTS)
    with torch.no_grad():
        got = model.encode_embeddings(model.embed_tokens(ids), ids)
        want = own_text_features(model.module, ids)
    torch.testing.assert_close(got, want, rtol=1e-5, atol=1e-5)
    assert got.std(dim=0).mean() > 1e-5, "the texts have one and the same feature"


@pytest.mark.parametrize("name", ZOO)
def test_gradients_reach_the_embeddings_and_nothing_else(name):
    model = build(name)
    ids = model.tokenize(TEXTS)
    embeddings = model.embed_tokens(ids).requires_grad_()
    assert all(p.requires_grad for p in model.module.parameters() if p.is_floating_point())
    model.encode_embeddings(embeddings, ids).square().sum().backward()
    assert embeddings.grad.norm() > 0
    assert all(p.grad is None for p in model.module.parameters())


@pytest.mark.parametrize("name", ZOO)
def test_image_features_are_the_models_own(name):
    model = build(name)
    pixels = torch.randn(3, 3, *model.image_spec.size)
    features = tpt_lib.encode_views(model, pixels, chunk=2)
    assert features.dtype == torch.float32
    torch.testing.assert_close(features.norm(dim=-1), torch.ones(3))
    if hasattr(model.module, "encode_image"):
        with torch.no_grad():
            want = nn.functional.normalize(model.module.encode_image(pixels), dim=-1)
        torch.testing.assert_close(features, want, rtol=1e-5, atol=1e-5)


def test_logits_are_scaled_cosines_plus_the_bias():
    model = build("open_clip-siglip")
    images, texts = (nn.functional.normalize(torch.randn(n, 16), dim=-1) for n in (2, 3))
    cosines = torch.tensor([[sum(a * b for a, b in zip(i, t, strict=True)) for t in texts] for i in images])
    want = math.exp(model.module.logit_scale.item()) * cosines - 10
    torch.testing.assert_close(tpt_lib.class_logits(model, images, texts), want)


@pytest.mark.parametrize("name", ZOO)
@pytest.mark.parametrize("training", [True, False])
def test_the_model_stays_as_it_was(name, training):
    model = fresh(name)
    model.module.train(training)
    before = state(model.module)
    ids = model.tokenize(TEXTS)
    text = model.encode_embeddings(model.embed_tokens(ids).requires_grad_(), ids)
    text.sum().backward()
    tpt_lib.encode_views(model, torch.randn(2, 3, *model.image_spec.size))
    assert_unchanged(before, model.module)


@pytest.mark.parametrize("name", ZOO)
def test_eval_mode_is_used_whatever_mode_the_model_is_in(name):
    model = fresh(name)
    for part in model.module.modules():  # dropout, where there is any, would show
        if isinstance(part, nn.Dropout):
            part.p = 0.5
        elif isinstance(getattr(part, "dropout", None), float):
            part.dropout = 0.5
    ids = model.tokenize(TEXTS)
    pixels = torch.randn(2, 3, *model.image_spec.size)
    results = []
    for training in (False, True):
        model.module.train(training)
        with torch.no_grad():
            results.append((model.encode_embeddings(model.embed_tokens(ids), ids), model.encode_image(pixels)))
    for evaluated, trained in zip(*results, strict=True):
        torch.testing.assert_close(evaluated, trained, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", ["open_clip-vit", "openai", "transformers-clip", "transformers-siglip"])
def test_the_model_stays_as_it_was_after_an_exception(name):
    model = fresh(name)
    model.module.train()
    norms = [m for m in model.module.modules() if isinstance(m, nn.LayerNorm)]

    def fail(*_):
        raise RuntimeError("in the middle")

    handles = [norm.register_forward_hook(fail) for norm in norms]
    before = state(model.module)
    ids = model.tokenize(TEXTS)
    with pytest.raises(RuntimeError, match="in the middle"):
        model.encode_embeddings(model.embed_tokens(ids), ids)
    with pytest.raises(RuntimeError, match="in the middle"):
        tpt_lib.encode_views(model, torch.randn(2, 3, *model.image_spec.size))
    assert_unchanged(before, model.module)
    assert handles


@pytest.mark.parametrize("name", ZOO)
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.bfloat16, 0.1), (torch.float16, 0.02)])
def test_half_precision_weights(name, dtype, tolerance):
    model, half = build(name), fresh(name)
    for part in half.module.modules():
        if not (name == "openai" and isinstance(part, nn.LayerNorm)):  # whose norms compute in float32
            part._apply(lambda t: t.to(dtype) if t.is_floating_point() else t, recurse=False)
    ids = model.tokenize(TEXTS)
    pixels = torch.randn(2, 3, *model.image_spec.size)
    with torch.no_grad():
        want, got = model.encode_embeddings(model.embed_tokens(ids), ids), half.encode_embeddings(half.embed_tokens(ids), ids)
    assert got.dtype == dtype
    assert (got.float() - want).norm() <= tolerance * want.norm()
    images, half_images = tpt_lib.encode_views(model, pixels), tpt_lib.encode_views(half, pixels)
    assert half_images.dtype == torch.float32
    assert (half_images - images).norm() <= tolerance * images.norm()


def test_mixed_precision_of_open_clip():
    import open_clip
    from open_clip.model import convert_weights_to_fp16

    module = open_clip_model()
    convert_weights_to_fp16(module)
    assert module.positional_embedding.dtype == torch.float32
    assert module.visual.conv1.weight.dtype == torch.float16
    assert tpt_lib.encode_views(tpt_lib.wrap(module), torch.randn(2, 3, 32, 32)).shape == (2, 16)
    assert open_clip.CLIP is type(module)


def test_a_transformers_tower_in_open_clip_is_tokenized_to_77(monkeypatch):
    import open_clip
    import transformers

    config = transformers.MT5Config(vocab_size=49408, d_model=32, d_ff=32, d_kv=8, num_layers=1, num_heads=4)
    monkeypatch.setattr(open_clip.hf_model.AutoConfig, "from_pretrained", lambda _: config)
    module = open_clip.CustomTextCLIP(
        16, vision_cfg=VISION, text_cfg={"hf_model_name": "mt5", "hf_model_pretrained": False}
    )
    assert module.text.context_length == 0
    model = tpt_lib.wrap(module, clip_tokenizer())
    assert model.tokenize(TEXTS).shape == (3, 77)


def test_weights_that_change_later_are_seen():
    model = fresh("open_clip-vit")
    ids = model.tokenize(TEXTS)
    with torch.no_grad():
        for change in (
            lambda m: m.ln_final.weight.mul_(2),
            lambda m: m.load_state_dict({k: v + 0.01 for k, v in m.state_dict().items()}, assign=True),
            lambda m: setattr(m, "token_embedding", nn.Embedding(49408, 32)),
            lambda m: m.double(),
        ):
            change(model.module)
            got = model.encode_embeddings(model.embed_tokens(ids), ids)
            torch.testing.assert_close(got, model.module.encode_text(ids), rtol=1e-5, atol=1e-5)


def test_compiled_modules_are_looked_through():
    module = open_clip_model()
    ids = tpt_lib.wrap(module).tokenize(TEXTS)
    want = tpt_lib.wrap(module).encode_embeddings(tpt_lib.wrap(module).embed_tokens(ids), ids)
    whole = torch.compile(copy.deepcopy(module), backend="eager")
    part = copy.deepcopy(module)
    part.transformer = torch.compile(part.transformer, backend="eager")
    part.ln_final.compile(backend="eager")
    for model in (tpt_lib.wrap(whole), tpt_lib.wrap(part)):
        torch.testing.assert_close(model.encode_embeddings(model.embed_tokens(ids), ids), want)


def test_a_model_made_in_inference_mode():
    with torch.inference_mode():
        module = open_clip_model()
    model = tpt_lib.wrap(module)
    ids = model.tokenize(TEXTS)
    embeddings = model.embed_tokens(ids).clone().requires_grad_()
    model.encode_embeddings(embeddings, ids).sum().backward()
    assert embeddings.grad.norm() > 0


def test_encode_views_inside_the_callers_inference_mode_can_enter_autograd():
    model = build("open_clip-vit")
    with torch.inference_mode():
        features = tpt_lib.encode_views(model, torch.randn(2, 3, 32, 32))
    assert not features.is_inference()


@pytest.mark.parametrize(("side", "chunks"), [(32, [64, 6]), (128, [24, 24, 22]), (336, [8] * 8 + [6])])
def test_a_cpu_encodes_few_large_views_and_many_small_ones_at_once(monkeypatch, side, chunks):
    seen = []

    def encode_image(_, pixels):
        seen.append(len(pixels))
        return pixels.mean(dim=(2, 3))

    model = dataclasses.replace(build("open_clip-vit"), image_spec=tpt_lib.ImageSpec((side, side)))
    monkeypatch.setattr(type(model), "encode_image", encode_image)
    assert tpt_lib.encode_views(model, torch.rand(1, 3, 1, 1).expand(70, 3, side, side)).shape == (70, 3)
    assert seen == chunks


# preprocessing


def own_transform(name, image):
    model = build(name)
    if name.startswith("open_clip"):
        import open_clip

        cfg = {"size": 32} if "siglip" not in name else {"size": 32, "resize_mode": "squash"}
        return open_clip.transform.image_transform_v2(open_clip.transform.PreprocessCfg(**cfg), is_train=False)(image)
    import transformers

    kind = type(model.module).__name__.removesuffix("Model").replace("AltCLIP", "CLIP")
    sizes = {"size": {"shortest_edge": 32}, "crop_size": {"height": 32, "width": 32}}
    if kind == "Siglip":
        sizes = {"size": {"height": 32, "width": 32}}
    if kind == "Siglip2":
        sizes = {"patch_size": 16, "max_num_patches": 4}
    return getattr(transformers, f"{kind}ImageProcessor")(**sizes)(image, return_tensors="pt")["pixel_values"][0]


@pytest.mark.parametrize("name", ["open_clip-vit", "transformers-clip", "transformers-siglip",
                                  "transformers-chinese-clip", "transformers-altclip"])  # fmt: skip
@pytest.mark.parametrize("box", [(0, 0, 451, 300), (100, 0, 300, 300), (0, 0, 33, 47)])
def test_preprocessing_is_the_models_own(name, box, photo):
    image = photo.crop(box)
    got, want = tpt_lib.preprocess(image, build(name).image_spec), own_transform(name, image)
    tolerance = (
        1e-6 if name.startswith("open_clip") else 1.01 / 255 / 0.26
    )  # torchvision's tensor resize: one grey level
    torch.testing.assert_close(got, want, rtol=0, atol=tolerance)


def test_siglip2_preprocessing_of_a_square_image(photo):
    image = photo.crop((100, 0, 400, 300))
    model = build("transformers-siglip2")
    patches = own_transform("transformers-siglip2", image)
    got = tpt_lib.preprocess(image, model.image_spec).unfold(1, 16, 16).unfold(2, 16, 16)
    got = got.permute(1, 2, 3, 4, 0).reshape(4, -1)
    torch.testing.assert_close(got, patches, rtol=0, atol=1.01 / 255 / 0.5)


@pytest.mark.parametrize("mode", ["shortest", "longest", "squash"])
@pytest.mark.parametrize("size", [(32, 32), (32, 48), (48, 32)])
@pytest.mark.parametrize("box", [(0, 0, 451, 300), (0, 0, 300, 300), (0, 0, 71, 300)])
def test_every_resize_mode_equals_open_clips(mode, size, box, photo):
    import open_clip

    image = photo.crop(box)
    cfg = open_clip.transform.PreprocessCfg(size=size, resize_mode=mode, fill_color=7)
    want = open_clip.transform.image_transform_v2(cfg, is_train=False)(image)
    got = tpt_lib.preprocess(image, tpt_lib.ImageSpec(size, resize_mode=mode, fill=7))
    torch.testing.assert_close(got, want, rtol=0, atol=1e-6)


def test_preprocessing_takes_tensors_and_grey_images(photo):
    spec = tpt_lib.ImageSpec((32, 32))
    pixels = torch.from_numpy(np.array(photo)).permute(2, 0, 1)
    want = tpt_lib.preprocess(photo, spec)
    for image in (pixels, pixels.float() / 255):
        assert (tpt_lib.preprocess(image, spec) - want).abs().max() <= 1.6 / 255 / 0.26
    assert tpt_lib.preprocess(photo.convert("L"), spec).shape == (3, 32, 32)


# loading


def test_load_transformers_from_a_folder(tmp_path):
    import transformers

    module = transformers_model()
    module.save_pretrained(tmp_path)
    clip_tokenizer().save_pretrained(tmp_path)
    sizes = {"size": {"shortest_edge": 32}, "crop_size": {"height": 32, "width": 32}}
    transformers.CLIPImageProcessor(**sizes).save_pretrained(tmp_path)
    model = tpt_lib.load_transformers(tmp_path)
    ids = model.tokenize(TEXTS)
    assert ids[0, :6].tolist() == [49406, 320, 1125, 539, 320, 2368]
    with torch.no_grad():
        torch.testing.assert_close(
            model.encode_embeddings(model.embed_tokens(ids), ids), module.get_text_features(input_ids=ids).pooler_output
        )
    assert model.image_spec == tpt_lib.ImageSpec((32, 32))


def test_a_transformers_checkpoint_that_does_not_fit(tmp_path):
    import safetensors.torch

    module = transformers_model()
    module.save_pretrained(tmp_path)
    weights = safetensors.torch.load_file(tmp_path / "model.safetensors")
    del weights["text_projection.weight"]
    safetensors.torch.save_file(weights, tmp_path / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ValueError, match=r"does not fit CLIPModel: 1 weights .* among them text_projection\.weight"):
        tpt_lib.load_transformers(tmp_path)


@pytest.fixture
def small_open_clip(tmp_path, monkeypatch):
    """A small architecture in open_clip's registry under the name ``small``, and a checkpoint of it."""
    import open_clip

    monkeypatch.setitem(open_clip.factory._MODEL_CONFIGS, "small", SMALL)
    monkeypatch.setitem(open_clip.factory._MODEL_CONFIGS, "small-quick", {**SMALL, "quick_gelu": True})
    module = open_clip.create_model("small")
    torch.save({"state_dict": module.state_dict()}, tmp_path / "small.pt")
    return module, tmp_path / "small.pt"


@pytest.mark.parametrize("suffix", [".pt", ".safetensors"])
def test_load_open_clip_from_a_file(small_open_clip, suffix):
    import safetensors.torch

    module, path = small_open_clip
    safetensors.torch.save_file(module.state_dict(), path.with_suffix(".safetensors"))
    model = tpt_lib.load_open_clip("small", pretrained=path.with_suffix(suffix))
    ids = model.tokenize(TEXTS)
    with torch.no_grad():
        want = module.eval().encode_text(ids)
        torch.testing.assert_close(model.encode_embeddings(model.embed_tokens(ids), ids), want)


def test_load_open_clip_from_a_folder(small_open_clip):
    import json

    _, path = small_open_clip
    path.rename(path.with_name("open_clip_pytorch_model.bin"))
    preprocess = {"mean": [0.5, 0.5, 0.5], "std": [0.5, 0.5, 0.5], "resize_mode": "squash"}
    config = {"model_cfg": SMALL, "preprocess_cfg": preprocess}
    path.with_name("open_clip_config.json").write_text(json.dumps(config))
    model = tpt_lib.load_open_clip(f"local-dir:{path.parent}")
    assert model.image_spec == tpt_lib.ImageSpec((32, 32), (0.5,) * 3, (0.5,) * 3, resize_mode="squash")


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
    with pytest.raises(ValueError, match="'small-quick' has QuickGELU and the tag 'tag' is registered without it"):
        tpt_lib.load_open_clip("small-quick", pretrained="tag")


def test_openai_weights_get_quick_gelu():
    import open_clip

    from tpt_lib.models.open_clip import _activation

    assert _activation("ViT-B-16", "openai", None, open_clip) is True
    assert _activation("ViT-B-16", "laion2b_s34b_b88k", None, open_clip) is False
