"""Hundreds of broken and odd files: each is an image, or is refused by the library's own error, soon and in little memory."""

import time
import warnings

import pytest
import torch
from support.cases import model_of
from support.hostile import corpus
from support.systems import needs_pipes

import tpt_lib
from tpt_lib.evaluation.profiling import measured

pytestmark = needs_pipes


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    return corpus(tmp_path_factory.mktemp("hostile"))


def outcome(path):
    start = time.process_time()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # as users have them: PIL warns of much that it can read
            pixels = tpt_lib.read_image(path)
        assert pixels.dtype == torch.uint8
        assert pixels.shape[0] == 3
        said = "read"
    except tpt_lib.ImageError as error:
        said = str(error)
    assert time.process_time() - start < 5
    assert said == "read" or repr(str(path)) in said
    return said


@pytest.mark.slow
def test_every_file_is_read_or_refused(files):
    paths, whole = files
    said = {}
    for path in paths:
        said[path], cost = measured(lambda path=path: outcome(path), torch.device("cpu"))
        assert cost.memory is None or cost.memory < 1500, path
    assert len(paths) >= 500
    assert [path.name for path in whole if said[path] != "read"] == []
    assert sum(each == "read" for each in said.values()) > 100
    assert sum(each != "read" for each in said.values()) > 300


@pytest.mark.filterwarnings("ignore::PIL.Image.DecompressionBombWarning")
@pytest.mark.parametrize(("name", "message"), [
    ("folder.jpg", "is not a file"),
    ("pipe.jpg", "is not a file"),
    ("device.jpg", "is not a file"),
    ("nowhere.jpg", "there is no file"),
    ("itself.jpg", "there is no file"),
    ("x" * 300 + ".jpg", "there is no file"),
    ("nul\0.jpg", "there is no file"),
    ("empty.jpg", "cannot be opened as an image"),
    ("bomb-bits-13000.png", r"has 13000 x 13000 pixels, more than PIL.Image.MAX_IMAGE_PIXELS = 89478485; raise that"),
    ("bomb-100000x100000.png", "cannot be opened as an image: .*decompression bomb"),
    ("bomb-texts.png", "cannot be"),
])  # fmt: skip
def test_why_files_are_refused(files, name, message):
    path = files[0][0].parent / name
    with pytest.raises(tpt_lib.ImageError, match=message):
        tpt_lib.read_image(path)


def test_a_missing_file_is_both(tmp_path):
    for kind in (FileNotFoundError, tpt_lib.ImageError, ValueError):
        with pytest.raises(kind, match=r"there is no file .*cat\.jpg"):
            tpt_lib.read_image(tmp_path / "cat.jpg")


@pytest.mark.slow
def test_what_can_be_read_can_be_classified(files):
    model, prompts = model_of(), tpt_lib.class_prompts(model_of(), ["cat", "dog"])
    paths = [path for path in files[1] if path.name.startswith("whole-")]
    for prediction in tpt_lib.tpt_classify(model, paths, prompts, n_views=4, recipe="augmix"):
        assert prediction.tuned
        assert prediction.probs.isfinite().all()
