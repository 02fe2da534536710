"""Names, roots, splits and torch datasets."""

import pytest
import torch
from support.miniatures import put

from tpt_lib.evaluation import list_datasets, load_dataset
from tpt_lib.evaluation.data.registry import ENTRIES


def test_a_split_there_is_not(tmp_path):
    with pytest.raises(ValueError, match="imagenet-a: split must be one of test, but got 'val'"):
        load_dataset("imagenet-a", tmp_path, split="val")


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
    with pytest.raises(ValueError, match=r"do not match: labels are 0..1, but there are 1 names, 'cat'"):
        load_dataset(ImageFolder(tmp_path), classes=["cat"])


def test_names_in_another_order_than_the_folders_are_warned_about(tmp_path):
    from torchvision.datasets import ImageFolder

    put(tmp_path / "cat/1.jpg", tmp_path / "red_panda/1.jpg")
    says = (
        r"classes are the names that .* has, in another order: class 0 is 'red panda' and should be 'cat'\. Labels keep"
    )
    for source in (tmp_path, ImageFolder(tmp_path)):
        with pytest.warns(UserWarning, match=says):
            load_dataset(source, classes=["red panda", "cat"])
        load_dataset(source, classes=["Cat", "red panda"])
        load_dataset(source, classes=["red fox", "cat"])


def test_names_and_roots(tmp_path):
    with pytest.raises(FileNotFoundError, match="did you mean 'flowers102'"):
        load_dataset("flower102", tmp_path)
    with pytest.raises(
        FileNotFoundError, match=r"the names imagenet, .*embedded one: noto-v1, .*, tiny-bongard \(load_tiny_"
    ):
        load_dataset("/no/such/place")
    with pytest.raises(ValueError, match=r"the names imagenet, .*embedded one: noto-v1, .*but got ' '"):
        load_dataset(" ")
    with pytest.raises(
        FileNotFoundError, match=r"did you mean 'noto-v1', which load_tiny_drawings\('noto-v1'\) loads\?"
    ):
        load_dataset("noto-v2")
    with pytest.raises(FileNotFoundError, match=r"is embedded and has no files; load it with load_tiny_bongard\(\)"):
        load_dataset("tiny_bongard")
    with pytest.raises(ValueError, match="'dtd' needs a root: load_dataset"):
        load_dataset("dtd")
    with pytest.raises(FileNotFoundError, match="the root '/no/such/place' is not a folder"):
        load_dataset("dtd", "/no/such/place")
    assert list_datasets() == tuple(ENTRIES)
