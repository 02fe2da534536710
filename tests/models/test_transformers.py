"""Load and wrap transformers models. (What every model must do is in conformance/test_models.)"""

import pytest
import torch
from support.zoo import build, clip_tokenizer, transformers_model

import tpt_lib

TEXTS = ["a photo of a cat.", "a photo of a red panda.", "kite"]
CROP = {"size": {"shortest_edge": 32}, "crop_size": {"height": 32, "width": 32}}


def test_load_from_a_folder(tmp_path):
    import transformers

    module = transformers_model()
    module.save_pretrained(tmp_path)
    clip_tokenizer().save_pretrained(tmp_path)
    transformers.CLIPImageProcessor(**CROP).save_pretrained(tmp_path)
    model = tpt_lib.load_transformers(tmp_path)
    ids = model.tokenize(TEXTS)
    assert ids[0, :6].tolist() == [49406, 320, 1125, 539, 320, 2368]
    with torch.no_grad():
        torch.testing.assert_close(
            model.encode_embeddings(model.embed_tokens(ids), ids), module.get_text_features(input_ids=ids).pooler_output
        )
    assert model.image_spec == tpt_lib.ImageSpec((32, 32))


def test_a_checkpoint_that_does_not_fit(tmp_path):
    import safetensors.torch

    module = transformers_model()
    module.save_pretrained(tmp_path)
    weights = safetensors.torch.load_file(tmp_path / "model.safetensors")
    del weights["text_projection.weight"]
    safetensors.torch.save_file(weights, tmp_path / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ValueError, match=r"does not fit CLIPModel: 1 weights .* among them text_projection\.weight"):
        tpt_lib.load_transformers(tmp_path)


def test_a_class_that_is_not_known(tmp_path):
    import transformers

    small = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    transformers.CLIPVisionModel(transformers.CLIPVisionConfig(**small)).save_pretrained(tmp_path)
    clip_tokenizer().save_pretrained(tmp_path)
    with pytest.raises(TypeError, match=r"is a CLIPVisionModel; known classes are AltCLIPModel, CLIPModel, "):
        tpt_lib.load_transformers(tmp_path, image_spec=tpt_lib.ImageSpec((32, 32)))


def test_a_processor_that_crops_less_than_it_resizes():
    import transformers

    images = transformers.CLIPImageProcessor(size={"shortest_edge": 36}, crop_size={"height": 32, "width": 32})
    processor = transformers.CLIPProcessor(images, clip_tokenizer())
    with pytest.raises(ValueError, match=r"resizes to .*36.* crops .*32.* cannot express; pass image_spec= with the"):
        tpt_lib.wrap(transformers_model(), processor)


PROCESSORS = {
    "transformers-clip": ("CLIP", CROP),
    "transformers-siglip": ("Siglip", {"size": {"height": 32, "width": 32}}),
    "transformers-chinese-clip": ("ChineseCLIP", CROP),
    "transformers-altclip": ("CLIP", CROP),
    "transformers-siglip2": ("Siglip2", {"patch_size": 16, "max_num_patches": 4}),
}


def own_transform(name, image):
    import transformers

    kind, sizes = PROCESSORS[name]
    return getattr(transformers, f"{kind}ImageProcessor")(**sizes)(image, return_tensors="pt")["pixel_values"][0]


@pytest.mark.parametrize("name", [name for name in PROCESSORS if name != "transformers-siglip2"])
@pytest.mark.parametrize("box", [(0, 0, 451, 300), (100, 0, 300, 300), (0, 0, 33, 47)])
def test_preprocessing_is_the_models_own(name, box, photo):
    image = photo.crop(box)
    got = tpt_lib.views.preprocess(image, build(name).image_spec)
    one_gray_level = 1.01 / 255 / 0.26  # torchvision's tensor resize rounds
    torch.testing.assert_close(got, own_transform(name, image), rtol=0, atol=one_gray_level)


def test_siglip2_preprocessing_of_a_square_image(photo):
    image = photo.crop((100, 0, 400, 300))
    patches = own_transform("transformers-siglip2", image)
    got = tpt_lib.views.preprocess(image, build("transformers-siglip2").image_spec).unfold(1, 16, 16).unfold(2, 16, 16)
    got = got.permute(1, 2, 3, 4, 0).reshape(4, -1)
    torch.testing.assert_close(got, patches, rtol=0, atol=1.01 / 255 / 0.5)
