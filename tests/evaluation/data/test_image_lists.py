"""VisDA-C and DomainNet: lists of paths and labels."""

import pytest
from support.miniatures import put, text

from tpt_lib.evaluation import load_dataset


def visda(root, split="validation", labels=(0, 1, 11)):
    paths = [f"folder {label}/{i}.jpg" for i, label in enumerate(labels)]
    text(
        root / split / "image_list.txt", "".join(f"{path} {label}\n" for path, label in zip(paths, labels, strict=True))
    )
    put(*(root / split / path for path in paths))


def domainnet(root, split, names, below=""):
    domain = split.split("_")[0]
    paths = [f"{domain}/{name}/{domain}_{i}.jpg" for i, name in names.items()]
    text(root / below / f"{split}.txt", "".join(f"{path} {i}\n" for path, i in zip(paths, names, strict=True)))
    put(*(root / path for path in paths))


def test_visda(tmp_path, published):
    visda(tmp_path / "visda-c")
    with pytest.raises(ValueError, match="visda-c: 9 of 12 classes have no images: 'bus', "):
        load_dataset("visda-c", tmp_path, split="validation")
    visda(tmp_path / "visda-c", labels=range(12))
    with pytest.raises(ValueError, match="found 12 images of 'validation'; catalogs of datasets say 55388"):
        load_dataset("visda-c", tmp_path, split="validation")
    published("visda-c", counts={"validation": 12}, confirmed=True)
    found = load_dataset("visda-c", tmp_path, split="validation")
    assert found.labels == list(range(12))
    assert (found.classes[0], found.classes[-1]) == ("airplane", "truck")
    assert found.samples.paths[1].endswith("validation/folder 1/1.jpg")


@pytest.mark.parametrize("below", ["", "txt"])
def test_domainnet_takes_names_from_all_lists(tmp_path, published, below):
    published("domainnet", classes=3, counts={"painting_test": 2, "clipart_test": 3, "clipart_train": 3})
    root = tmp_path / "domainnet"
    domainnet(root, "painting_test", {0: "cat", 2: "zebra"}, below)
    with pytest.raises(ValueError, match=r"no list next to .* names class 1\. Add the list of another domain"):
        load_dataset("domainnet", tmp_path, split="painting_test")
    domainnet(root, "clipart_test", {0: "cat", 1: "t-shirt", 2: "zebra"}, below)
    found = load_dataset("domainnet", tmp_path, split="painting_test")
    assert (found.classes, found.labels) == (("cat", "t-shirt", "zebra"), [0, 2])  # no painting of one, as published
    domainnet(root, "clipart_train", {0: "cat", 1: "t-shirt", 2: "zebu"}, below)
    with pytest.raises(ValueError, match="labels and names do not match: label 2 is 'zebra' and, for clipart/zebu"):
        load_dataset("domainnet", tmp_path, split="clipart_test")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", r"image_list\.txt is empty"),
        ("a.jpg 0\nb.jpg\n", r"line 2 of .* must be the path of an image and a label, but is 'b\.jpg'"),
        ("a.jpg 0\nb.jpg 12\n", r"line 2 of .* has the label 12, but there are 12 classes"),
        ("../a.jpg 0\n", "points outside of the dataset's folder"),
    ],
)
def test_a_broken_list_says_where(tmp_path, content, message):
    text(tmp_path / "test/image_list.txt", content)
    with pytest.raises(ValueError, match=message):
        load_dataset("visda-c", tmp_path, split="test")


def test_missing_lists_and_images(tmp_path):
    with pytest.raises(
        FileNotFoundError, match=r"no train/image_list\.txt in .* Expected below the root: visda-c/valid"
    ):
        load_dataset("visda-c", tmp_path, split="train")
    visda(tmp_path)
    (tmp_path / "validation/folder 1/1.jpg").unlink()
    with pytest.raises(FileNotFoundError, match=r"1 of 3 images are missing, first .*1\.jpg"):
        load_dataset("visda-c", tmp_path, split="validation")
    assert load_dataset("visda-c", tmp_path, split="validation", subset=True).labels == [0, 11]
