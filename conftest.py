"""Shape checks, and names for doctests: ``torch``, ``tpt_lib``, an empty ``folder``, and a ``model``, a small CLIP of
open_clip's with random weights."""

import functools
import os

import pytest

# Some virtual machines say that they have AMX and then stop at its instructions, in the first product of bfloat16 matrices.
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_FP16")


def pytest_configure(config):
    """Check shapes and types at every call of the library, but not in the quick suite, where that takes a third of the time."""
    if config.option.markexpr != "not slow":
        from jaxtyping import install_import_hook

        install_import_hook("tpt_lib", "beartype.beartype")


@functools.cache
def _model():
    import open_clip
    import torch

    import tpt_lib

    torch.manual_seed(0)
    image = {"layers": 2, "width": 64, "head_width": 32, "patch_size": 32, "image_size": 224}
    text = {"layers": 2, "width": 256, "heads": 4}
    return tpt_lib.wrap(open_clip.CLIP(256, image, text).eval())


@pytest.fixture(autouse=True)
def _names_of_doctests(request, doctest_namespace):
    if isinstance(request.node, pytest.DoctestItem):
        import torch

        import tpt_lib

        folder = request.getfixturevalue("tmp_path")
        doctest_namespace.update(torch=torch, tpt_lib=tpt_lib, model=_model(), folder=folder)
