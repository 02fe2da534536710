"""``wrap`` and the names of the room. (Errors are in conformance/test_errors.)"""

import subprocess
import sys

import pytest
import torch
from support.zoo import ZOO, open_clip_model

import tpt_lib
import tpt_lib.models

CODE = "import {}, sys; print(*({{'open_clip', 'torchvision', 'transformers'}} & set(sys.modules)))"


def heavy(module):
    return subprocess.run(
        [sys.executable, "-c", CODE.format(module)], capture_output=True, text=True, check=True
    ).stdout


@pytest.mark.slow
def test_importing_the_room_is_light():
    assert heavy("tpt_lib.models").split() == []


@pytest.mark.slow
def test_that_the_test_of_light_import_can_fail():
    assert "open_clip" in heavy("tpt_lib.models, open_clip")


def test_all_is_sorted_and_exact():
    names = tpt_lib.models.__all__
    assert names == sorted(names)
    assert names == ["CausalBlock", "CausalTower", "ClipLike", "ImageSpec", "ModuleClip", "load_open_clip",
                     "load_transformers", "tower_digest", "wrap"]  # fmt: skip
    assert all(getattr(tpt_lib.models, name).__doc__ for name in names)


@pytest.mark.parametrize("name", ZOO)
def test_subclasses_are_wrapped_as_their_parents(name):
    module, tokenizer = ZOO[name][0](), ZOO[name][1]
    before = tpt_lib.wrap(module, tokenizer and tokenizer())
    module.__class__ = type("Mine", (type(module),), {})
    after = tpt_lib.wrap(module, tokenizer and tokenizer())
    functions = ("image_features", "text_features")
    assert [getattr(after, each) for each in functions] == [getattr(before, each) for each in functions]
    assert after.image_spec == before.image_spec


def test_a_compiled_model_is_wrapped_as_the_model_inside():
    module = open_clip_model()
    assert tpt_lib.wrap(torch.compile(module, backend="eager")) == tpt_lib.wrap(module)
