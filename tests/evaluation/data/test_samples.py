"""The label and the file of a sample."""

from pathlib import Path

import numpy as np
import pytest
import torch
from torch.utils.data import Subset

from tpt_lib.evaluation import ImageFiles
from tpt_lib.evaluation.data.samples import class_index, listed_file, shown_path


@pytest.mark.parametrize("label", [1, np.int64(1), np.uint8(1), torch.tensor(1)])
def test_integers_of_any_kind_are_labels(label):
    assert class_index(label, 2) == 1
    assert type(class_index(np.int64(1), 2)) is int


@pytest.mark.parametrize(
    "label", [0.7, 1.0, np.float32(1), torch.tensor(1.0), "1", None, -1, 2, torch.tensor(2), [1], True]
)
def test_anything_else_is_no_label(label):
    with pytest.raises(ValueError, match=r"a label must be the index of a class, an int from 0 to 1, but got "):
        class_index(label, 2)


def test_the_file_of_a_sample_is_known_without_reading_it():
    files = ImageFiles(["a.png", Path("b.png")], [0, 1])
    assert [listed_file(files, i) for i in (0, 1)] == ["a.png", "b.png"]
    assert listed_file(Subset(Subset(files, [1, 0]), [1]), 0) == "a.png"

    class Folder(torch.utils.data.Dataset):
        samples = [("cat/1.png", 0), ("dog/2.png", 1)]  # noqa: RUF012

        def __getitem__(self, i):
            raise AssertionError

    assert listed_file(Folder(), 1) == "dog/2.png"
    assert listed_file([("a.png", 1), (torch.zeros(3, 4, 4), 1)], 0) == "a.png"
    assert listed_file([("a.png", 1), (torch.zeros(3, 4, 4), 1)], 1) is None
    assert listed_file(torch.utils.data.TensorDataset(torch.zeros(2)), 1) is None


def test_paths_are_relative_to_the_root_if_they_are_below_it():
    assert shown_path("/data/pets/cat/1.png", "/data/pets") == "cat/1.png"
    assert shown_path(Path("pets/cat/1.png"), "pets") == "cat/1.png"
    assert shown_path("/data/other/1.png", "/data/pets") == "/data/other/1.png"
    assert shown_path("cat/1.png", None) == "cat/1.png"
    assert shown_path(torch.zeros(3, 4, 4), "/data") is None
