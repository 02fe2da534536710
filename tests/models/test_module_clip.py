"""The adapter behind the ready-made ones: equality, tokenizers, weights that change, and its use by ``encode_views``."""

import dataclasses
import math

import pytest
import torch
from support.zoo import build, clip_tokenizer, fresh, transformers_model
from torch import nn

import tpt_lib
from tpt_lib.models.module_clip import PaddedTokenizer

TEXTS = ["a photo of a cat.", "a photo of a red panda.", "kite"]


def test_models_are_equal_if_they_wrap_the_same_module():
    model = build("open_clip-vit")
    again = tpt_lib.wrap(model.module, image_spec=tpt_lib.ImageSpec((64, 64)))
    assert again == model
    assert len({again, model}) == 1
    assert fresh("open_clip-vit") != model
    assert model != model.module


def test_the_name_is_shown():
    model = build("open_clip-vit")
    assert repr(model) == "<CLIP as ClipLike, images (32, 32)>"
    assert repr(dataclasses.replace(model, name="mine")) == "<mine as ClipLike, images (32, 32)>"


def test_a_processor_brings_tokenizer_and_preprocessing():
    import transformers

    images = transformers.SiglipImageProcessor(size={"height": 32, "width": 32})
    processor = transformers.CLIPProcessor(images, clip_tokenizer())
    model = tpt_lib.wrap(transformers_model(), processor)
    assert isinstance(model.tokenizer, PaddedTokenizer)
    assert model.tokenize(TEXTS).equal(build("transformers-clip-own-tokenizer").tokenize(TEXTS))
    assert model.image_spec == tpt_lib.ImageSpec((32, 32), (0.5,) * 3, (0.5,) * 3, "bicubic", "squash")


def test_long_texts_are_cut_to_the_context_length():
    ids = build("transformers-clip-own-tokenizer").tokenize(["cat " * 100])
    assert ids[0].tolist() == [49406] + [2368] * 75 + [49407]


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


def test_logits_are_scaled_cosines_plus_the_bias():
    model = build("open_clip-siglip")
    images, texts = (nn.functional.normalize(torch.randn(n, 16), dim=-1) for n in (2, 3))
    cosines = torch.tensor([[sum(a * b for a, b in zip(i, t, strict=True)) for t in texts] for i in images])
    want = math.exp(model.module.logit_scale.item()) * cosines - 10
    torch.testing.assert_close(tpt_lib.class_logits(model, images, texts), want)


def test_encode_views_normalizes_in_float32():
    model = fresh("open_clip-vit")
    model.module.to(torch.bfloat16)
    views = torch.randn(3, 3, 32, 32)
    with torch.no_grad():
        want = nn.functional.normalize(model.module.encode_image(views.bfloat16()).float(), dim=-1)
    torch.testing.assert_close(tpt_lib.encode_views(model, views), want, rtol=1e-6, atol=1e-6)


def test_encode_views_inside_the_callers_inference_mode_can_enter_autograd():
    model = build("open_clip-vit")
    with torch.inference_mode():
        features = tpt_lib.encode_views(model, torch.randn(2, 3, 32, 32))
    assert not features.is_inference()


@pytest.mark.parametrize(("side", "chunks"), [(32, [64, 6]), (128, [24, 24, 22]), (336, [8] * 8 + [6])])
def test_a_cpu_encodes_few_large_views_and_many_small_ones_together(monkeypatch, side, chunks):
    seen = []

    def encode_image(_, pixels):
        seen.append(len(pixels))
        return pixels.mean(dim=(2, 3))

    model = dataclasses.replace(build("open_clip-vit"), image_spec=tpt_lib.ImageSpec((side, side)))
    monkeypatch.setattr(type(model), "encode_image", encode_image)
    colors = torch.rand(70, 3, 1, 1)
    got = tpt_lib.encode_views(model, colors.expand(70, 3, side, side))
    torch.testing.assert_close(got, nn.functional.normalize(colors.flatten(1), dim=-1))
    assert seen == chunks
