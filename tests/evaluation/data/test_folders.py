"""Folders of class folders: ImageNet and its variants, and any other folder; each check, set off once."""

import re
from pathlib import Path

import pytest
from open_clip import IMAGENET_CLASSNAMES
from support.marking import slow_but
from support.miniatures import put, text
from timm.data import ImageNetInfo

import tpt_lib
from tpt_lib.evaluation import load_dataset
from tpt_lib.evaluation.data.folders import imagenet_names
from tpt_lib.evaluation.data.registry import ENTRIES

SYNSETS = ImageNetInfo().label_names()

PLACES = {
    "imagenet": ["imagenet/images/val", "ImageNet/val", "val", "."],
    "imagenet-a": ["imagenet-a", "imagenet-adversarial/imagenet-a", "."],
    "imagenet-r": ["imagenet-r", "imagenet-rendition/imagenet-r"],
    "imagenet-sketch": ["imagenet-sketch/images", "ImageNet-Sketch", "sketch"],
}


NAMED_PLACES = [(name, place) for name in PLACES for place in PLACES[name]]


@pytest.mark.parametrize(("name", "place"), slow_but([("imagenet", "val"), ("imagenet-a", ".")], NAMED_PLACES))
def test_synset_folders(name, place, tmp_path, published):
    synsets = imagenet_names(name)
    put(
        *(
            tmp_path / place / synset / f"{i}.JPEG"
            for synset in synsets
            for i in range(2 if synset == "n01498041" else 1)
        )
    )
    published(name, counts={"test": len(synsets) + 1})
    found = load_dataset(name, tmp_path)
    assert len(found.classes) == len(synsets) == ENTRIES[name].classes
    assert (found.name, found.split, found.recipe, found.template) == (name, "test", "crop", "a photo of a {}.")
    for path, label in found.samples:
        assert found.classes[label] == IMAGENET_CLASSNAMES[SYNSETS.index(Path(path).parent.name)]
    assert tpt_lib.read_image(found.samples[0][0]).shape == (3, 6, 8)


def test_imagenet_has_train_and_val_folders(tmp_path, published):
    put(*(tmp_path / "imagenet" / part / synset / "1.JPEG" for part in ("train", "val") for synset in SYNSETS))
    published("imagenet", counts={"test": 1000, "val": 1000, "train": 1000})
    for split, folder in {"test": "val", "val": "val", "train": "train"}.items():
        found = load_dataset("imagenet", tmp_path, split=split)
        assert found.split == split
        assert {Path(path).parts[-3] for path in found.samples.paths} == {folder}


def test_imagenet_c_by_corruption_and_severity(tmp_path, published):
    for place, split in (("imagenet-c", "fog/3"), ("imagenet-c/noise", "shot_noise/1")):
        put(*(tmp_path / place / split / synset / "1.JPEG" for synset in SYNSETS))
    with pytest.raises(ValueError, match="imagenet-c: found 1000 images of 'fog/3', fewer than the published 50000"):
        load_dataset("imagenet-c", tmp_path, split="fog/3")
    published("imagenet-c", counts=dict.fromkeys(("fog/3", "fog/4", "shot_noise/1"), 1000))
    for split in ("fog/3", "shot_noise/1"):
        found = load_dataset("imagenet-c", tmp_path, split=split)
        assert (found.split, len(found.classes)) == (split, 1000)
        assert {"/".join(Path(path).parts[-4:-2]) for path in found.samples.paths} == {split}
    with pytest.raises(FileNotFoundError, match=r"no folder 'fog/4' in .*\. Unpack this corruption"):
        load_dataset("imagenet-c", tmp_path, split="fog/4")
    with pytest.raises(ValueError, match=r"a corruption and a severity from 1 to 5, .* shot_noise, .* got 'test'"):
        load_dataset("imagenet-c", tmp_path)


@pytest.mark.parametrize(
    "place", ["imagenetv2-matched-frequency-format-val", "imagenetv2/imagenetv2-matched-frequency-format-val", "."]
)
def test_imagenet_v2_is_in_the_order_of_numbers(place, tmp_path, published):
    put(*(tmp_path / place / str(i) / "a.jpeg" for i in range(1000)))
    published("imagenet-v2", counts={"test": 1000})
    found = load_dataset("imagenet-v2", tmp_path)
    assert [int(Path(path).parent.name) for path in found.samples.paths] == found.labels == list(range(1000))
    assert found.classes == IMAGENET_CLASSNAMES


def test_subsets_have_the_names_of_their_synsets():
    assert len(imagenet_names("imagenet-a")) == len(imagenet_names("imagenet-r")) == 200
    assert imagenet_names("imagenet-a")["n01498041"] == "stingray"
    assert imagenet_names("imagenet-r")["n01443537"] == "goldfish"


def test_the_classes_of_subsets_are_in_the_order_of_imagenet():
    order = list(imagenet_names())
    for subset in ("imagenet-a", "imagenet-r"):
        assert list(imagenet_names(subset)) == [synset for synset in order if synset in imagenet_names(subset)]


def synset_error(tmp_path, name="imagenet", **options):
    with pytest.raises(ValueError, match=name) as caught:
        load_dataset(name, tmp_path, **options)
    return str(caught.value)


def test_folders_that_are_not_synsets(tmp_path):
    put(tmp_path / "val/tench/1.jpg", tmp_path / "val/goldfish/1.jpg")
    assert "such as 'n01440764'; found 'goldfish', 'tench'" in synset_error(tmp_path / "val")


def test_images_not_sorted_into_folders(tmp_path):
    put(*(tmp_path / f"imagenet/val/ILSVRC2012_val_0000000{i}.JPEG" for i in range(3)))
    assert "3 images are directly in" in synset_error(tmp_path)


def test_one_level_too_deep(tmp_path):
    deep = tmp_path / "downloads/unpacked/imagenet-r"
    put(deep / "n01443537/1.jpg")
    assert f"pass root={str(deep)!r}" in synset_error(tmp_path, "imagenet-r")


def test_another_dataset_in_its_place(tmp_path):
    put(*(tmp_path / synset / "1.jpg" for synset in SYNSETS[:20]))
    assert "are not among its 200 classes: 'n01440764'" in synset_error(tmp_path, "imagenet-a")


def test_numbered_folders_that_are_not_0_to_999(tmp_path):
    put(*(tmp_path / str(i) / "1.jpg" for i in range(1, 1001)))
    assert "1 of 1000 folders" in synset_error(tmp_path, "imagenet-v2")


def test_classes_without_images(tmp_path, published):
    put(*(tmp_path / synset / "1.jpg" for synset in SYNSETS[2:]))
    (tmp_path / SYNSETS[0]).mkdir()
    published("imagenet", counts={"test": 998})
    assert "2 of 1000 classes have no images" in synset_error(tmp_path)
    found = load_dataset("imagenet", tmp_path, subset=True)
    assert (len(found), len(found.classes), min(found.labels)) == (998, 1000, 2)


def test_another_number_of_images_than_published(tmp_path):
    put(*(tmp_path / synset / "1.jpg" for synset in imagenet_names("imagenet-a")))
    assert "found 200 images of 'test', fewer than the published 7500" in synset_error(tmp_path, "imagenet-a")
    assert len(load_dataset("imagenet-a", tmp_path, subset=True)) == 200


def test_any_folder(tmp_path):
    put(tmp_path / "mine/red panda/b.PNG", tmp_path / "mine/red panda/a.jpg", tmp_path / "mine/cat/c.webp")
    put(tmp_path / "mine/.cache/x.jpg")
    text(tmp_path / "mine/README.txt", "words")
    found = load_dataset(tmp_path / "mine")
    assert (found.name, found.classes, found.labels) == ("mine", ("cat", "red panda"), [0, 1, 1])
    assert [Path(path).name for path in found.samples.paths] == ["c.webp", "a.jpg", "b.PNG"]
    assert load_dataset("mine", tmp_path, classes=["a", "b"]).classes == ("a", "b")
    with pytest.raises(ValueError, match=r"mine has 2 classes, 'cat', 'red panda', so .* but got 3"):
        load_dataset(tmp_path / "mine", classes=["a", "b", "c"])


def test_a_folder_of_some_synsets_has_imagenets_names(tmp_path):
    put(tmp_path / "n01443537/1.jpg", tmp_path / "n01440764/1.jpg")
    assert load_dataset(tmp_path).classes == ("tench", "goldfish")


def test_a_folder_of_numbers_needs_names(tmp_path):
    put(*(tmp_path / str(i) / "1.jpg" for i in range(11)))
    with pytest.raises(ValueError, match="folders are numbers"):
        load_dataset(tmp_path)
    found = load_dataset(tmp_path, classes=[f"class {i}" for i in range(11)])
    assert [Path(path).parent.name for path in found.samples.paths] == [str(i) for i in range(11)]


def test_a_folder_one_level_too_high(tmp_path):
    put(tmp_path / "data/test/cat/1.jpg", tmp_path / "data/test/dog/1.jpg")
    for folder in (tmp_path, tmp_path / "data"):
        with pytest.raises(ValueError, match=f"Did you mean {re.escape(str(tmp_path / 'data/test'))}"):
            load_dataset(folder)


def test_a_folder_without_class_folders(tmp_path):
    with pytest.raises(ValueError, match="found nothing and no image"):
        load_dataset(tmp_path)
    put(tmp_path / "1.jpg")
    with pytest.raises(ValueError, match="its 1 images are in no class folder"):
        load_dataset(tmp_path)


def test_a_class_folder_without_images(tmp_path):
    put(tmp_path / "cat/1.jpg")
    (tmp_path / "dog").mkdir()
    with pytest.raises(ValueError, match="1 of 2 class folders have no images in them: 'dog'"):
        load_dataset(tmp_path)
    assert load_dataset(tmp_path, subset=True).classes == ("cat", "dog")
