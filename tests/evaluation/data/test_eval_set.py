"""What an EvalSet checks, and that it can be sent to worker processes."""

import pickle

import pytest
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
