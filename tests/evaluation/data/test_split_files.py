"""The fine-grained sets with CoOp's splits and as their original releases; each check, set off once."""

import inspect
import json
import re
import warnings
from pathlib import Path

import numpy as np
import pytest
from support.miniatures import coop, put, text
from torchvision.datasets import DTD

import tpt_lib
from tpt_lib.evaluation import load_dataset
from tpt_lib.evaluation.data.registry import ENTRIES

originals = pytest.mark.skipif(
    "loader" not in inspect.signature(DTD).parameters, reason="original releases need torchvision 0.22 or later"
)
SPLITS = {name: entry for name, entry in ENTRIES.items() if entry.family == "splits" and entry.split_file}


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


def split_error(tmp_path, name="pets", error=ValueError, **options):
    with pytest.raises(error, match=name) as caught:
        load_dataset(name, tmp_path, **options)
    return str(caught.value)


def test_a_label_with_two_names(tmp_path, small):
    small("pets")
    splits = coop(ENTRIES["pets"], tmp_path, "images")
    splits["train"][0][2] = "other"
    text(tmp_path / ENTRIES["pets"].split_file, splits)
    assert "labels and names do not match" in split_error(tmp_path)


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
    assert "only split='trainval' or split='test', from which split_validation makes a validation set" in message
    assert "Expected below the root: ucf101/" in split_error(tmp_path, "ucf101", FileNotFoundError)
    assert "images_variant_test.txt" in split_error(tmp_path, "aircraft", FileNotFoundError)


def test_a_split_file_one_level_too_deep(tmp_path):
    coop(ENTRIES["ucf101"], tmp_path / "unpacked/UCF", "UCF-101-midframes")
    assert f"pass root={str(tmp_path / 'unpacked/UCF')!r}" in split_error(tmp_path, "ucf101", FileNotFoundError)


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


@originals
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


@originals
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


def test_an_older_torchvision_is_named_before_the_work(tmp_path, monkeypatch):
    (tmp_path / "food-101").mkdir()
    monkeypatch.setattr("torchvision.datasets.Food101", lambda root, split: None)
    with pytest.raises(
        ImportError, match=r"torchvision 0\.22 or later: pip install -U torchvision, or get split_zhou_Food101"
    ):
        load_dataset("food101", tmp_path)


@originals
def test_an_original_release_with_a_part_missing(tmp_path):
    (tmp_path / "food-101").mkdir()
    with pytest.raises(FileNotFoundError, match=r"torchvision cannot read .*food-101: Dataset not found"):
        load_dataset("food101", tmp_path)


@pytest.mark.parametrize(("damaged", "says"), [
    (lambda text: "", "is empty. Download it again"),
    (lambda text: text[: len(text) // 2], "is cut short or broken at line 1"),
    (lambda text: "[]", "has no samples of 'test'; it holds list"),
    (lambda text: '{"test": 3}', "has no samples of 'test'; it holds 'test'"),
    (lambda text: '{"test": ["a.jpg"]}', "item 0 of 'test' in .* must be .path, label, name., but is 'a.jpg'"),
    (lambda text: '{"test": [["a.jpg", 0]]}', "item 0 of 'test' in .* but is .'a.jpg', 0."),
    (lambda text: text.replace(', 1, "name_1"', ', "one", "name_1"', 1), "item 2 of 'train' in .* but is .*'one', 'name_1'"),
    (lambda text: text.replace('"train_0/0.jpg"', "null", 1), "item 0 of 'train' in .* but is .None, 0"),
])  # fmt: skip
def test_damaged_split_files(damaged, says, tmp_path, small):
    small("pets")
    coop(ENTRIES["pets"], tmp_path, "images")
    file = tmp_path / ENTRIES["pets"].split_file
    file.write_text(damaged(file.read_text()))
    message = split_error(tmp_path)
    assert str(file) in message
    assert re.search(says, message)


@pytest.mark.parametrize("encoding", ["utf-16", "latin-1"])
def test_split_files_in_other_encodings(encoding, tmp_path, small):
    small("pets")
    file = tmp_path / ENTRIES["pets"].split_file
    splits = coop(ENTRIES["pets"], tmp_path, "images")
    written = json.dumps(splits, ensure_ascii=False).replace("name_1", "Löwe")
    file.write_text(written, encoding="utf-8-sig")
    assert load_dataset("pets", tmp_path).classes == ("name_0", "Löwe", "name_2")
    file.write_text(written, encoding=encoding)
    assert f"iconv -f {encoding.upper().replace('LATIN', 'Latin')}" in split_error(tmp_path)


@pytest.mark.parametrize(
    "path", ["../out/0.jpg", "a/../../out/0.jpg", "/../out/0.jpg", "..\\out\\0.jpg", "./../out/0.jpg"]
)
def test_a_split_file_does_not_leave_the_root(path, tmp_path, small):
    small("pets")
    root = tmp_path / "root"
    splits = coop(ENTRIES["pets"], root, "images")
    put(tmp_path / "out/0.jpg", root / "images/a/0.jpg", root / "out/0.jpg")
    splits["test"][1][0] = path
    text(root / ENTRIES["pets"].split_file, splits)
    assert "points outside of the dataset's folder" in split_error(root)


def test_an_absolute_path_is_read_below_the_root(tmp_path, small):
    small("pets")
    splits = coop(ENTRIES["pets"], tmp_path, "images")
    splits["test"] = [[f"/{path}", label, name] for path, label, name in splits["test"]]
    text(tmp_path / ENTRIES["pets"].split_file, splits)
    assert load_dataset("pets", tmp_path).samples[0][0] == str(tmp_path / "images/test_0/0.jpg")


def test_aircraft_does_not_leave_the_root(tmp_path, small):
    small("aircraft", classes=1)
    text(tmp_path / "variants.txt", "707\n")
    text(tmp_path / "images_variant_test.txt", "../../x 707\n")
    assert "points outside of the dataset's folder: '../../x'" in split_error(tmp_path, "aircraft")
    (tmp_path / "variants.txt").write_text("Löwe", encoding="latin-1")
    assert "variants.txt' is not UTF-8, from line 1 on; it may be Latin-1" in split_error(tmp_path, "aircraft")
