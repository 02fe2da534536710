"""What an EvalSet checks, and that it can be sent to worker processes."""

import pickle
import re

import numpy as np
import pytest
import torch
from support.miniatures import bongard, put

from tpt_lib.evaluation import EvalSet, ImageFiles, load_dataset


def test_bongard_has_truths_not_labels(tmp_path):
    bongard(tmp_path)
    with pytest.raises(ValueError, match="problems have no labels"):
        _ = load_dataset("bongard-hoi", tmp_path, split="seen_act_seen_obj").labels


def test_what_an_eval_set_refuses(no_shape_checks):
    images = ImageFiles(["a.jpg", "b.jpg"], [0, 1])
    for classes in ("cat", ["cat", 3], ["cat", " "]):
        with pytest.raises(ValueError, match="classes must be a list of names"):
            EvalSet("x", images, classes)
    with pytest.raises(ValueError, match="labels and names do not match"):
        EvalSet("x", images, ["cat"])
    with pytest.raises(ValueError, match=r"the template must have a {}"):
        EvalSet("x", images, ["cat", "dog"], template="a photo of")
    with pytest.raises(ValueError, match="samples must not be empty"):
        EvalSet("x", ImageFiles([], []), ["cat", "dog"])
    with pytest.raises(ValueError, match="2 paths need as many labels, but got 1"):
        ImageFiles(["a", "b"], [0])


def test_sets_go_to_worker_processes(tmp_path):
    put(tmp_path / "cat/1.jpg")
    bongard(tmp_path / "b")
    for found in (
        load_dataset(tmp_path / "../" / tmp_path.name, subset=True),
        load_dataset("bongard-hoi", tmp_path / "b", split="seen_act_seen_obj"),
    ):
        assert pickle.loads(pickle.dumps(found)).samples[0] == found.samples[0]


class Listed(torch.utils.data.Dataset):
    """A dataset that lists its labels, as torchvision's do."""

    def __init__(self, targets):
        self.targets = targets

    def __len__(self):
        return len(self.targets)


@pytest.mark.parametrize(
    "listed",
    [
        lambda labels: Listed(labels),
        lambda labels: [("a.png", label) for label in labels],
        lambda labels: torch.utils.data.Subset([("a.png", label) for label in labels], [0, 1]),
        lambda labels: ImageFiles(["a.png", "b.png"], labels),
    ],
    ids=["targets", "a list", "a subset", "ImageFiles"],
)
def test_labels_that_are_known_are_checked_before_the_work(listed, no_shape_checks):
    for wrong, shown in [(1.0, "1.0"), (0.7, "0.7"), (True, "True"), ("dog", "'dog'"), (None, "None")]:
        with pytest.raises(ValueError, match=f"must be an int, the index of its class, but got {re.escape(shown)}"):
            EvalSet("x", listed([0, wrong]), ["cat", "dog"])
    for wrong in (-1, 2):
        with pytest.raises(ValueError, match="EvalSet x: labels and names do not match"):
            EvalSet("x", listed([0, wrong]), ["cat", "dog"])
    for right in ([0, 1], [np.int64(0), torch.tensor(1)]):
        assert EvalSet("x", listed(right), ["cat", "dog"]).labels == [0, 1]


@pytest.mark.parametrize("labels", [torch.tensor([0.0, 1.0]), torch.tensor([False, True]), np.array([0.0, 1.0])])
def test_tensors_of_labels_are_ints(labels):
    with pytest.raises(ValueError, match="EvalSet x: the label of sample 0 must be an int"):
        EvalSet("x", Listed(labels), ["cat", "dog"])


def test_labels_that_are_read_with_the_images_are_checked_too():
    class Unlisted(Listed):
        def __init__(self):
            pass

        def __len__(self):
            return 2

        def __getitem__(self, i):
            return None, i / 2

    with pytest.raises(ValueError, match=r"a label must be an int, the index of its class, but got 0\.0"):
        _ = EvalSet("x", Unlisted(), ["cat", "dog"]).labels
