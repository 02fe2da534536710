"""Miniature copies of each layout on disk, loaded; and each check of the loader, set off once."""

import io
import json
import pickle
import re
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import PIL.Image
import pytest
import torch
from open_clip import IMAGENET_CLASSNAMES
from timm.data import ImageNetInfo

import tpt_lib
from tpt_lib.evaluation import EvalSet, ImageFiles, dataset_names, datasets, folders, load_dataset
from tpt_lib.evaluation.data.registry import ENTRIES, SPLITS_OF_BONGARD

ROOT = Path(__file__).parents[3]
SYNSETS = ImageNetInfo().label_names()
SPLITS = {name: entry for name, entry in ENTRIES.items() if entry.split_file}


def tiny_jpeg():
    buffer = io.BytesIO()
    PIL.Image.new("RGB", (8, 6), (200, 10, 10)).save(buffer, "JPEG")
    return buffer.getvalue()


JPEG = tiny_jpeg()


def put(*files):
    for file in files:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(JPEG)


def text(file, content):
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(content if isinstance(content, str) else json.dumps(content))


@pytest.fixture
def published(monkeypatch):
    """Makes an entry expect the numbers of a miniature."""

    def change(name, **numbers):
        monkeypatch.setattr(datasets, "ENTRIES", {**datasets.ENTRIES, name: replace(datasets.ENTRIES[name], **numbers)})

    return change


# ImageNet and its variants

PLACES = {
    "imagenet": ["imagenet/images/val", "ImageNet/val", "val", "."],
    "imagenet-a": ["imagenet-a", "imagenet-adversarial/imagenet-a", "."],
    "imagenet-r": ["imagenet-r", "imagenet-rendition/imagenet-r"],
    "imagenet-sketch": ["imagenet-sketch/images", "ImageNet-Sketch", "sketch"],
}


@pytest.mark.parametrize(("name", "place"), [(name, place) for name in PLACES for place in PLACES[name]])
def test_synset_folders(name, place, tmp_path, published):
    synsets = folders.imagenet_names(name)
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
    assert len(folders.imagenet_names("imagenet-a")) == len(folders.imagenet_names("imagenet-r")) == 200
    assert folders.imagenet_names("imagenet-a")["n01498041"] == "stingray"
    assert folders.imagenet_names("imagenet-r")["n01443537"] == "goldfish"


def synset_error(tmp_path, name="imagenet", **options):
    with pytest.raises(ValueError, match=name) as caught:
        load_dataset(name, tmp_path, **options)
    return str(caught.value)


def test_folders_that_are_not_synsets(tmp_path):
    put(tmp_path / "val/tench/1.jpg", tmp_path / "val/goldfish/1.jpg")
    assert "such as 'n01440764'; found 'goldfish', 'tench'" in synset_error(tmp_path / "val")


def test_images_not_sorted_into_folders(tmp_path):
    put(*(tmp_path / f"imagenet/val/ILSVRC2012_val_0000000{i}.JPEG" for i in range(3)))
    assert "3 images lie directly in" in synset_error(tmp_path)


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
    put(*(tmp_path / synset / "1.jpg" for synset in folders.imagenet_names("imagenet-a")))
    assert "found 200 images of 'test', fewer than the published 7500" in synset_error(tmp_path, "imagenet-a")
    assert len(load_dataset("imagenet-a", tmp_path, subset=True)) == 200


# the ten fine-grained sets, with CoOp's splits


def coop(entry, home, images, classes=3):
    """A split file beside images: two of each class and split."""
    splits = {
        split: [[f"{split}_{k}/{i}.jpg", k, f"name_{k}"] for k in range(classes) for i in range(2)]
        for split in ("train", "val", "test")
    }
    text(home / entry.split_file, splits)
    put(*(home / images / path for items in splits.values() for path, _, _ in items))
    return splits


@pytest.fixture
def small(published):
    def change(name, **numbers):
        published(name, **{"classes": 3, "counts": dict.fromkeys(("train", "val", "test"), 6), **numbers})

    return change


@pytest.mark.parametrize("split", ["train", "val", "test"])
@pytest.mark.parametrize("name", SPLITS)
def test_split_files(name, split, tmp_path, small):
    entry = ENTRIES[name]
    small(name)
    coop(entry, tmp_path / entry.folders[0], entry.images[0])
    for root in (tmp_path, tmp_path / entry.folders[0]):
        found = load_dataset(name, root, split=split)
        assert found.classes == ("name_0", "name_1", "name_2")
        assert found.labels == [0, 0, 1, 1, 2, 2]
        assert (found.split, found.recipe, found.template) == (split, "augmix", "a photo of a {}.")
        path = Path(found.samples[5][0])
        assert path == tmp_path / entry.folders[0] / entry.images[0] / f"{split}_2/1.jpg"
        assert path.is_file()


def test_split_files_in_a_folder_of_their_own(tmp_path, small):
    small("dtd")
    coop(ENTRIES["dtd"], tmp_path / "DTD", "images")
    (tmp_path / "data_splits").mkdir()
    (tmp_path / "DTD" / ENTRIES["dtd"].split_file).rename(tmp_path / "data_splits" / ENTRIES["dtd"].split_file)
    assert len(load_dataset("dtd", tmp_path)) == 6


@pytest.mark.parametrize("home", ["fgvc_aircraft", "fgvc-aircraft-2013b/data"])
def test_aircraft(home, tmp_path, small):
    small("aircraft", classes=2)
    text(tmp_path / home / "variants.txt", "707-320\nA340-200\n")
    lines = [f"000{i} {('A340-200', '707-320')[i % 2]}" for i in range(6)]
    text(tmp_path / home / "images_variant_test.txt", "\n".join(lines) + "\n")
    put(*(tmp_path / home / f"images/000{i}.jpg" for i in range(6)))
    found = load_dataset("aircraft", tmp_path)
    assert found.classes == ("707-320", "A340-200")
    assert found.labels == [1, 0, 1, 0, 1, 0]
    assert Path(found.samples[1][0]).name == "0001.jpg"
    text(tmp_path / home / "variants.txt", "707-320\nA340\n")
    with pytest.raises(ValueError, match=r"not in variants.txt: 'A340-200'"):
        load_dataset("aircraft", tmp_path)


def test_few_shots_of_a_train_split(tmp_path, small):
    small("food101")
    coop(ENTRIES["food101"], tmp_path / "food-101", "images")
    train = load_dataset("food101", tmp_path, split="train")
    shots = train.take(tpt_lib.few_shot(train.labels, 1, seed=3))
    assert (shots.labels, shots.split, shots.classes) == ([0, 1, 2], "train", train.classes)
    assert [label for _, label in (shots.samples[i] for i in range(3))] == [0, 1, 2]


def split_error(tmp_path, name="pets", error=ValueError, **options):
    with pytest.raises(error, match=name) as caught:
        load_dataset(name, tmp_path, **options)
    return str(caught.value)


def test_a_label_with_two_names(tmp_path, small):
    small("pets")
    splits = coop(ENTRIES["pets"], tmp_path, "images")
    splits["train"][0][2] = "other"
    text(tmp_path / ENTRIES["pets"].split_file, splits)
    assert "labels and names are out of step" in split_error(tmp_path)


def test_labels_with_a_gap(tmp_path, small):
    small("pets")
    splits = coop(ENTRIES["pets"], tmp_path, "images")
    text(tmp_path / ENTRIES["pets"].split_file, {k: [s for s in v if s[1] != 1] for k, v in splits.items()})
    assert "has 2 classes, but labels 0..2; expected labels 0..2 without a gap" in split_error(tmp_path, subset=True)


def test_a_split_file_with_other_classes(tmp_path):
    coop(ENTRIES["pets"], tmp_path, "images")
    assert "found 3 classes, 'name_0', 'name_1', 'name_2', expected 37" in split_error(tmp_path)
    assert len(load_dataset("pets", tmp_path, subset=True)) == 6


def test_a_class_of_a_split_without_images(tmp_path, small):
    small("pets", counts={"train": 6, "val": 6, "test": 4})
    splits = coop(ENTRIES["pets"], tmp_path, "images")
    text(tmp_path / ENTRIES["pets"].split_file, {**splits, "test": splits["test"][:4]})
    assert "1 of 3 classes have no images: 'name_2'" in split_error(tmp_path)


def test_a_split_file_without_the_split(tmp_path):
    text(tmp_path / ENTRIES["pets"].split_file, {"train": []})
    assert "has no samples of 'test'; it holds 'train'" in split_error(tmp_path)


def test_another_number_than_the_papers_split(tmp_path, published):
    published("pets", classes=3)
    coop(ENTRIES["pets"], tmp_path, "images")
    assert "found 6 images of 'test', fewer than the published 3669" in split_error(tmp_path)


def test_missing_images(tmp_path, small):
    small("pets")
    coop(ENTRIES["pets"], tmp_path, "images")
    (tmp_path / "images/test_2/0.jpg").unlink()
    assert "1 of 6 images are missing" in split_error(tmp_path, error=FileNotFoundError)
    assert load_dataset("pets", tmp_path, subset=True).labels == [0, 0, 1, 1, 2]
    (tmp_path / "images").rename(tmp_path / "pictures")
    assert "is in none of" in split_error(tmp_path, error=FileNotFoundError, subset=True)


def test_no_split_file(tmp_path):
    message = split_error(tmp_path, "eurosat", FileNotFoundError)
    assert "no split_zhou_EuroSAT.json" in message
    assert "only split='all'" in message
    assert "eurosat/2750/AnnualCrop" in message
    message = split_error(tmp_path, "pets", FileNotFoundError, split="val")
    assert "only split='trainval' or split='test', a part of which hold_out makes a validation set" in message
    assert "Expected below the root: ucf101/" in split_error(tmp_path, "ucf101", FileNotFoundError)
    assert "images_variant_test.txt" in split_error(tmp_path, "aircraft", FileNotFoundError)


def test_a_split_file_one_level_too_deep(tmp_path):
    coop(ENTRIES["ucf101"], tmp_path / "unpacked/UCF", "UCF-101-midframes")
    assert f"pass root={str(tmp_path / 'unpacked/UCF')!r}" in split_error(tmp_path, "ucf101", FileNotFoundError)


def test_a_split_there_is_not(tmp_path):
    assert "split must be one of test, but got 'val'" in split_error(tmp_path, "imagenet-a", split="val")


# the original releases, as torchvision reads them


def dtd(root):
    for split in ("train", "val", "test"):
        text(root / f"dtd/dtd/labels/{split}1.txt", "banded/b_1.jpg\nzigzagged/z_1.jpg\n")
    put(root / "dtd/dtd/images/banded/b_1.jpg", root / "dtd/dtd/images/zigzagged/z_1.jpg")
    return "original-test", ("banded", "zigzagged"), {"b_1": 0, "z_1": 1}


def food101(root):
    text(root / "food-101/meta/test.json", {"waffles": ["waffles/8"], "apple_pie": ["apple_pie/9"]})
    put(root / "food-101/images/waffles/8.jpg", root / "food-101/images/apple_pie/9.jpg")
    return "original-test", ("apple_pie", "waffles"), {"8": 1, "9": 0}


def pets(root):
    home = root / "oxford-iiit-pet"
    text(home / "annotations/test.txt", "Abyssinian_201 1 1 1\namerican_bulldog_203 2 2 1\n")
    put(home / "images/Abyssinian_201.jpg", home / "images/american_bulldog_203.jpg")
    return "test", ("Abyssinian", "American Bulldog"), {"Abyssinian_201": 0, "american_bulldog_203": 1}


def eurosat(root):
    put(root / "eurosat/2750/AnnualCrop/AnnualCrop_1.jpg", root / "eurosat/2750/Forest/Forest_1.jpg")
    return "original-all", ("Annual Crop", "Forest"), {"AnnualCrop_1": 0, "Forest_1": 1}


def sun397(root):
    text(root / "SUN397/ClassName.txt", "/a/abbey\n/a/apartment_building/outdoor\n")
    put(root / "SUN397/a/abbey/sun_a.jpg", root / "SUN397/a/apartment_building/outdoor/sun_b.jpg")
    return "original-all", ("abbey", "outdoor apartment_building"), {"sun_a": 0, "sun_b": 1}


def cars(root):
    io = pytest.importorskip("scipy.io")
    home = root / "stanford_cars"
    put(home / "cars_test/00001.jpg", home / "cars_test/00002.jpg")
    (home / "devkit").mkdir()
    names = np.array(["AM General Hummer SUV 2000", "Audi TT RS Coupe 2012"], dtype=object)
    rows = np.array([("00001.jpg", 2), ("00002.jpg", 1)], dtype=[("fname", object), ("class", int)])
    io.savemat(home / "devkit/cars_meta.mat", {"class_names": names})
    io.savemat(home / "cars_test_annos_withlabels.mat", {"annotations": rows})
    return "test", ("2000 AM General Hummer SUV", "2012 Audi TT RS Coupe"), {"00001": 1, "00002": 0}


def flowers102(root):
    io = pytest.importorskip("scipy.io")
    home = root / "flowers-102"
    put(home / "jpg/image_00001.jpg", home / "jpg/image_00002.jpg")
    io.savemat(home / "setid.mat", {"trnid": [1, 1], "valid": [1, 1], "tstid": [1, 2]})
    io.savemat(home / "imagelabels.mat", {"labels": [2, 1]})
    return "original-test", ("pink primrose", "hard-leaved pocket orchid"), {"image_00001": 1, "image_00002": 0}


@pytest.mark.parametrize(
    "build", [dtd, food101, pets, eurosat, sun397, cars, flowers102], ids=lambda build: build.__name__
)
def test_original_releases(build, tmp_path, published, monkeypatch):
    monkeypatch.setattr("torchvision.datasets.flowers102.check_integrity", lambda file, md5: Path(file).is_file())
    monkeypatch.setattr("torchvision.datasets.Flowers102.classes", ["pink primrose", "hard-leaved pocket orchid"])
    split, names, labels = build(tmp_path)
    name, asked = build.__name__, split.removeprefix("original-")
    published(name, classes=2, counts={"test": 2 if split == "test" else 7}, original={asked: 2})
    home = tmp_path / ENTRIES[name].torchvision[1].split("/")[0]
    for root in (tmp_path, home):
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            found = load_dataset(name, root, split=asked)
        assert ["original test split of 2 images" in str(one.message) for one in said] == [True] * (
            split == "original-test"
        )
        assert (found.split, found.classes, found.recipe) == (split, names, "augmix")
        assert {Path(path).stem: label for path, label in found.samples} == labels
        assert tpt_lib.read_image(found.samples[0][0]).shape == (3, 6, 8)


def test_another_number_than_the_original_split(tmp_path, published):
    eurosat(tmp_path)
    published("eurosat", classes=2)
    assert "found 2 images of 'original-all', fewer than the published 27000" in split_error(
        tmp_path, "eurosat", split="all"
    )


def test_the_papers_splits_are_preferred(tmp_path, small):
    dtd(tmp_path)
    small("dtd")
    coop(ENTRIES["dtd"], tmp_path / "dtd/dtd", "images")
    assert load_dataset("dtd", tmp_path).split == "test"


def test_without_scipy(tmp_path, monkeypatch):
    (tmp_path / "flowers-102").mkdir()
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ImportError, match=r"pip install scipy, or get split_zhou_OxfordFlowers.json"):
        load_dataset("flowers102", tmp_path)


def test_an_original_release_with_a_part_missing(tmp_path):
    (tmp_path / "food-101").mkdir()
    with pytest.raises(FileNotFoundError, match=r"torchvision cannot read .*food-101: Dataset not found"):
        load_dataset("food101", tmp_path)


# Bongard-HOI


def bongard(
    root, split="seen_obj_seen_act", problems=3, files="bongard-hoi/bongard_hoi_release", images="bongard-hoi/hake"
):
    def side(name):
        return [{"im_path": f"./images/pic/image/val/{name}_{i}.jpg"} for i in range(7)]

    made = [[side(f"{split}_{n}_yes"), side(f"{split}_{n}_no"), "ride++bicycle"] for n in range(problems)]
    text(root / files / f"bongard_hoi_test_{split}.json", made)
    put(*(root / images / one["im_path"] for problem in made for part in problem[:2] for one in part))
    return made


def test_bongard_problems(tmp_path):
    for split in SPLITS_OF_BONGARD:
        words = split.split("_")
        in_files = "_".join(words[2:] + words[:2])
        bongard(tmp_path, in_files)
        found = load_dataset("bongard-hoi", tmp_path, split=split)
        assert (found.split, len(found), found.classes) == (split, 3, ("positive", "negative"))
        assert load_dataset("bongard-hoi", tmp_path / "bongard-hoi", split=in_files).split == split
        for n in range(3):
            positives, negatives, queries, truths = found.samples[n]
            assert truths == ("positive", "negative")
            for supports, query, kind in zip((positives, negatives), queries, ("yes", "no"), strict=True):
                assert len(supports) == 6
                assert {Path(p).name for p in (*supports, query)} == {
                    f"{in_files}_{n}_{kind}_{i}.jpg" for i in range(7)
                }
                assert all(Path(p).is_file() for p in (*supports, query))


@pytest.mark.parametrize(("files", "images"), [("cache", "assets/data/hake"), ("bongard_splits", "hake"), (".", ".")])
def test_bongard_in_other_places(files, images, tmp_path):
    bongard(tmp_path, files=files, images=images)
    assert len(load_dataset("bongard-hoi", tmp_path, split="seen_act_seen_obj")) == 3


def test_bongard_queries_are_seeded_for_each_problem(tmp_path):
    bongard(tmp_path, problems=12)

    def queries(**options):
        found = load_dataset("bongard-hoi", tmp_path, split="seen_act_seen_obj", **options).samples
        assert [found[i] for i in range(12)] == [found[i] for i in range(12)]
        return [tuple(Path(q).stem[-1] for q in found[i].queries) for i in range(12)]

    assert queries() == queries()
    assert queries() != queries(seed=1)
    assert len(set(queries())) > 6
    file = tmp_path / "bongard-hoi/bongard_hoi_release/bongard_hoi_test_seen_obj_seen_act.json"
    before = queries()
    text(file, json.loads(file.read_text())[::-1])
    assert queries() == before[::-1]


def test_bongard_images_that_moved_or_are_missing(tmp_path):
    bongard(tmp_path)
    folder = tmp_path / "bongard-hoi/hake/images/pic/image"
    put(folder / "train/x.jpg")
    (folder / "val/seen_obj_seen_act_1_no_3.jpg").rename(folder / "train/seen_obj_seen_act_1_no_3.jpg")
    found = load_dataset("bongard-hoi", tmp_path, split="seen_act_seen_obj")
    assert str(folder / "train/seen_obj_seen_act_1_no_3.jpg") in (
        *found.samples[1].negatives,
        found.samples[1].queries[1],
    )
    (folder / "val/seen_obj_seen_act_2_no_3.jpg").unlink()
    with pytest.raises(FileNotFoundError, match="1 images of 1 of 3 problems"):
        load_dataset("bongard-hoi", tmp_path, split="seen_act_seen_obj")
    assert len(load_dataset("bongard-hoi", tmp_path, split="seen_act_seen_obj", subset=True)) == 2


def test_bongard_errors(tmp_path):
    with pytest.raises(ValueError, match=r"one of seen_act_seen_obj, .* but got 'test'"):
        load_dataset("bongard-hoi", tmp_path)
    with pytest.raises(FileNotFoundError, match=r"no bongard_hoi_test_unseen_obj_seen_act.json"):
        load_dataset("bongard-hoi", tmp_path, split="seen_act_unseen_obj")
    made = bongard(tmp_path, files="deep/er")
    with pytest.raises(FileNotFoundError, match=r"It lies in .*deep/er"):
        load_dataset("bongard-hoi", tmp_path, split="seen_act_seen_obj")
    made[1][0].pop()
    text(tmp_path / "bongard_hoi_test_seen_obj_seen_act.json", made)
    with pytest.raises(ValueError, match=r"problem 1 .* has 6 positives and 7 negatives, expected 7"):
        load_dataset("bongard-hoi", tmp_path, split="seen_act_seen_obj")
    text(tmp_path / "bongard_hoi_test_seen_obj_seen_act.json", [])
    with pytest.raises(ValueError, match="holds no problems"):
        load_dataset("bongard-hoi", tmp_path, split="seen_act_seen_obj")


def test_bongard_has_truths_not_labels(tmp_path):
    bongard(tmp_path)
    with pytest.raises(ValueError, match="problems have no labels"):
        _ = load_dataset("bongard-hoi", tmp_path, split="seen_act_seen_obj").labels


# any folder, any dataset


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
        with pytest.raises(ValueError, match=f"Is {re.escape(str(tmp_path / 'data/test'))} the folder that was meant"):
            load_dataset(folder)


def test_a_folder_without_class_folders(tmp_path):
    with pytest.raises(ValueError, match="found nothing and no image"):
        load_dataset(tmp_path)
    put(tmp_path / "1.jpg")
    with pytest.raises(ValueError, match="its 1 images lie in no class folder"):
        load_dataset(tmp_path)


def test_a_class_folder_without_images(tmp_path):
    put(tmp_path / "cat/1.jpg")
    (tmp_path / "dog").mkdir()
    with pytest.raises(ValueError, match="1 of 2 class folders have no images in them: 'dog'"):
        load_dataset(tmp_path)
    assert load_dataset(tmp_path, subset=True).classes == ("cat", "dog")


class Squares(torch.utils.data.Dataset):
    def __len__(self):
        return 4

    def __getitem__(self, index):
        return torch.rand(3, 8, 8), index % 2


def test_any_torch_dataset():
    found = load_dataset(Squares(), classes=["a", "b"], split="mine")
    assert (found.name, len(found), found.classes, found.split) == ("Squares", 4, ("a", "b"), "mine")
    assert found.labels == [0, 1, 0, 1]
    assert found.take([3, 0]).labels == [1, 0]
    with pytest.raises(ValueError, match="a Squares does not name its classes"):
        load_dataset(Squares())


def test_torch_datasets_that_list_their_classes_and_labels(tmp_path):
    from torchvision.datasets import ImageFolder

    put(tmp_path / "cat/1.jpg", tmp_path / "dog/1.jpg")
    found = load_dataset(ImageFolder(tmp_path))
    assert (found.classes, found.labels) == (("cat", "dog"), [0, 1])
    with pytest.raises(ValueError, match=r"out of step: labels are 0..1, but there are 1 names, 'cat'"):
        load_dataset(ImageFolder(tmp_path), classes=["cat"])


def test_what_an_eval_set_refuses(no_shape_checks):
    images = ImageFiles(["a.jpg", "b.jpg"], [0, 1])
    for classes in ("cat", ["cat", 3], ["cat", " "]):
        with pytest.raises(ValueError, match="classes must be a list of names"):
            EvalSet("x", images, classes)
    with pytest.raises(ValueError, match="labels and names are out of step"):
        EvalSet("x", images, ["cat"])
    with pytest.raises(ValueError, match=r"the template must have a {}"):
        EvalSet("x", images, ["cat", "dog"], template="a photo of")
    with pytest.raises(ValueError, match="no samples"):
        EvalSet("x", ImageFiles([], []), ["cat", "dog"])
    with pytest.raises(ValueError, match="2 paths need as many labels, but got 1"):
        ImageFiles(["a", "b"], [0])


def test_names_and_roots(tmp_path):
    with pytest.raises(FileNotFoundError, match="did you mean 'flowers102'"):
        load_dataset("flower102", tmp_path)
    with pytest.raises(FileNotFoundError, match="the names are imagenet, "):
        load_dataset("/no/such/place")
    with pytest.raises(ValueError, match="say where 'dtd' lies"):
        load_dataset("dtd")
    with pytest.raises(FileNotFoundError, match="the root '/no/such/place' is not a folder"):
        load_dataset("dtd", "/no/such/place")
    assert dataset_names() == tuple(ENTRIES)


def test_sets_go_to_worker_processes(tmp_path):
    put(tmp_path / "cat/1.jpg")
    bongard(tmp_path / "b")
    for found in (
        load_dataset(tmp_path / "../" / tmp_path.name, subset=True),
        load_dataset("bongard-hoi", tmp_path / "b", split="seen_act_seen_obj"),
    ):
        assert pickle.loads(pickle.dumps(found)).samples[0] == found.samples[0]


# the registry


def test_the_registry_is_the_papers():
    recipes = {name: entry.recipe for name, entry in ENTRIES.items()}
    assert len(ENTRIES) == 16
    assert [name for name in recipes if name.startswith("imagenet")] == [
        name for name, recipe in recipes.items() if recipe == "crop" and name != "bongard-hoi"
    ]
    assert sum(entry.counts["test"] for name, entry in ENTRIES.items() if recipes[name] == "augmix") == 83_696


def test_the_counts_are_those_of_coops_splits():
    """Its code gives half, a fifth and the rest of each class to the parts, or holds a fifth of the original train set out."""
    of = {name: [entry.counts[split] for split in ("train", "val", "test")] for name, entry in SPLITS.items()}
    equal_classes = {"dtd": 120, "food101": 1000}
    for name, images in equal_classes.items():
        assert of[name] == [ENTRIES[name].classes * images * share // 10 for share in (5, 2, 3)]
    assert of["eurosat"] == [27_000 * share // 10 for share in (5, 2, 3)]
    assert of["sun397"] == [397 * images for images in (40, 10, 50)]
    assert [sum(of[name][:2]) for name in ("pets", "cars", "ucf101")] == [3_680, 8_144, 9_537]
    assert sum(of["flowers102"]) == sum(ENTRIES["flowers102"].original.values()) == 8_189
    assert sum(of["caltech101"]) == 9_144 - 467 - 435  # without the background and Faces_easy
    assert sum(ENTRIES["aircraft"].counts.values()) == 10_000


def test_the_page_has_every_dataset():
    lines = (ROOT / "docs/datasets.md").read_text().splitlines()
    for entry in ENTRIES.values():
        counts = " | ".join(
            f"{entry.counts[split]:,}" if split in entry.counts else "-" for split in ("train", "val", "test")
        )
        views = "-" if entry.family == "problems" else entry.recipe
        assert f"| `{entry.name}` | {entry.classes:,} | {counts} | {views} |" in lines
        files, folders = "`, `".join(entry.layout.split(", ")), "`, `".join(entry.folders)
        assert f"| `{entry.name}` | `{files}` | `{folders}` |" in lines
    for entry in ENTRIES.values():
        if entry.torchvision:
            counts = ", ".join(f"{split} {count:,}" for split, count in entry.original.items())
            assert f"| `{entry.name}` | `{entry.torchvision[1]}` | {counts} |" in lines
