"""The Protocols, and what the fields of an ImageSpec mean."""

import numpy as np
import PIL.Image
import pytest
import torch
from support.zoo import build

import tpt_lib

MEMBERS = ["image_spec", "logit_scale", "logit_bias", "tokenize", "embed_tokens", "encode_image", "encode_embeddings"]


def test_seven_members_make_a_clip_like():
    assert isinstance(type("Own", (), dict.fromkeys(MEMBERS, print))(), tpt_lib.ClipLike)
    assert isinstance(build("openai"), tpt_lib.ClipLike)


@pytest.mark.parametrize("missing", MEMBERS)
def test_six_do_not(missing):
    assert not isinstance(type("Own", (), dict.fromkeys(set(MEMBERS) - {missing}, print))(), tpt_lib.ClipLike)


@pytest.mark.parametrize("mode", ["shortest", "longest", "squash"])
@pytest.mark.parametrize("size", [(32, 32), (32, 48), (48, 32)])
@pytest.mark.parametrize("box", [(0, 0, 451, 300), (0, 0, 300, 300), (0, 0, 71, 300)])
def test_every_resize_mode_equals_open_clips(mode, size, box, photo):
    import open_clip

    image = photo.crop(box)
    cfg = open_clip.transform.PreprocessCfg(size=size, resize_mode=mode, fill_color=7)
    want = open_clip.transform.image_transform_v2(cfg, is_train=False)(image)
    got = tpt_lib.views.preprocess(image, tpt_lib.ImageSpec(size, resize_mode=mode, fill=7))
    torch.testing.assert_close(got, want, rtol=0, atol=1e-6)


def test_preprocessing_takes_tensors_and_gray_images(photo):
    spec = tpt_lib.ImageSpec((32, 32))
    pixels = torch.from_numpy(np.array(photo)).permute(2, 0, 1)
    want = tpt_lib.views.preprocess(photo, spec)
    for image in (pixels, pixels.float() / 255):
        assert (tpt_lib.views.preprocess(image, spec) - want).abs().max() <= 1.6 / 255 / 0.26
    gray = photo.convert("L")
    three = PIL.Image.merge("RGB", [gray] * 3)
    assert torch.equal(tpt_lib.views.preprocess(gray, spec), tpt_lib.views.preprocess(three, spec))
