"""Modules built like OpenAI's CLIP. (What every model must do is in conformance/test_models.)"""

import pytest
from support.zoo import openai_model

import tpt_lib
from tpt_lib.models.openai import OPENAI_PARTS, wrap_openai


def test_the_image_size_is_the_modules_own():
    assert tpt_lib.wrap(openai_model()).image_spec == tpt_lib.ImageSpec((32, 32))


def test_a_module_that_does_not_tell_its_image_size():
    module = openai_model()
    del module.visual.input_resolution
    with pytest.raises(ValueError, match=r"has no input_resolution; pass image_spec=ImageSpec\(\(h, w\)\)"):
        tpt_lib.wrap(module)
    spec = tpt_lib.ImageSpec((32, 32), resize_mode="squash")
    assert tpt_lib.wrap(module, image_spec=spec).image_spec is spec


@pytest.mark.parametrize("missing", [part for part in OPENAI_PARTS if not part.startswith("encode")])
def test_a_module_without_one_of_the_parts_is_another_kind(missing):
    module = openai_model()
    assert wrap_openai(module, None, None) is not None
    delattr(module, missing)
    assert wrap_openai(module, None, None) is None
