"""What the page shows of a sample before a method runs: its label, its path and its picture."""

import base64
import io
import json
import re
import shutil

import PIL.Image
import pytest
from support.app import drawn_store, tiny
from support.stores import change_index

import tpt_lib
from tpt_lib.app.store_inputs import describe_sample, first_views
from tpt_lib.app.stored import compare_with_models


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("drawn")
    drawn_store(made)
    return made


def rows(text):
    return dict(re.findall(r"<tr><th>(.*?)</th><td>(.*?)</td></tr>", text))


def changed(folder, out, **dataset):
    """The store of the folder with other facts about its dataset."""
    copy = shutil.copytree(folder / "store", out)
    change_index(copy, dataset={**json.loads((copy / "index.json").read_text())["dataset"], **dataset})
    return tpt_lib.FeatureStore.open(copy)


def test_label_path_and_picture(folder):
    text = describe_sample(tpt_lib.FeatureStore.open(folder / "store"), 1)
    known = {"true label": "unicorn", "path": "unicorn/1.png", "template": "a photo of a {}."}
    assert rows(text) == {**known, "dataset": "drawings/test, 3 classes"}
    shown = re.search(r'<img src="data:image/webp;base64,(.*?)"', text).group(1)
    image = PIL.Image.open(io.BytesIO(base64.b64decode(shown)))
    wanted = PIL.Image.open(folder / "drawings/unicorn/1.png")
    assert image.size == wanted.size
    difference = tpt_lib.read_image(image).float() - tpt_lib.read_image(wanted).float()
    assert difference.abs().mean() < 10  # it is compressed


def test_a_picture_that_is_not_below_the_folder_of_the_dataset_is_left_out(folder, tmp_path):
    for number, root in enumerate([str(folder / "drawings/cat"), str(folder / "nowhere"), None]):
        text = describe_sample(changed(folder, tmp_path / str(number), root=root), 1)
        assert "<img" not in text
        assert rows(text)["path"] == "unicorn/1.png"


def test_a_sample_without_features_says_why(folder):
    text = describe_sample(tpt_lib.FeatureStore.open(folder / "store"), 3)
    assert rows(text)["no features"].startswith("ImageError: ")
    assert "<img" not in text


@pytest.mark.parametrize("number", [4, -1, None, 1.5])
def test_a_number_that_no_sample_has(folder, number):
    text = describe_sample(tpt_lib.FeatureStore.open(folder / "store"), number)
    assert f"there is no sample {number} in this store; its samples are 0 to 3" in text


def test_names_are_escaped(folder, tmp_path):
    evil = "<img src=x onerror=alert(1)>"
    text = describe_sample(changed(folder, tmp_path / "evil", classes=[evil] * 3, template=evil, root=None), 1)
    assert evil not in text
    assert text.count("&lt;img src=x") == 2


def test_the_page_starts_with_the_views_of_the_store(folder):
    assert first_views(None) == (64, 0)
    store = tpt_lib.FeatureStore.open(folder / "store").of_model("tiny").seed(1)
    assert first_views(compare_with_models(store, {"tiny": tiny()})) == (8, 1)
