"""Few-shot samples and validation sets."""

import pytest
import torch
from support.miniatures import coop

import tpt_lib
from tpt_lib.evaluation import EvalSet, load_dataset
from tpt_lib.evaluation.data.registry import ENTRIES


def test_few_shots_of_a_train_split(tmp_path, small):
    small("food101")
    coop(ENTRIES["food101"], tmp_path / "food-101", "images")
    train = load_dataset("food101", tmp_path, split="train")
    shots = train.take(tpt_lib.evaluation.sample_few_shot(train.labels, 1, seed=3))
    assert (shots.labels, shots.split, shots.classes) == ([0, 1, 2], "train", train.classes)
    assert [label for _, label in (shots.samples[i] for i in range(3))] == [0, 1, 2]


def test_few_shots_are_so_many_of_each_class():
    labels = torch.tensor([2, 0, 2, 2, 0, 1])
    chosen = tpt_lib.evaluation.sample_few_shot(labels, 2)
    assert labels[chosen].tolist() == [0, 0, 1, 2, 2]
    assert len(set(chosen.tolist())) == 5
    assert any(tpt_lib.evaluation.sample_few_shot(labels, 2, seed=s).tolist() != chosen.tolist() for s in range(1, 5))
    with pytest.raises(ValueError, match="sample_few_shot: shots must be an int of at least 1, but got 0"):
        tpt_lib.evaluation.sample_few_shot(labels, 0)


def labeled(*counts):
    labels = [k for k, count in enumerate(counts) for _ in range(count)]
    return EvalSet("some", [(f"{i}.png", k) for i, k in enumerate(labels)], [f"class {k}" for k in range(len(counts))])


def paths(part):
    return [part.samples[i][0] for i in range(len(part))]


def test_a_fifth_of_each_class_is_held_out():
    data = labeled(50, 10, 4, 2, 1)
    rest, val = tpt_lib.evaluation.split_validation(data)
    assert torch.bincount(torch.tensor(val.labels), minlength=5).tolist() == [10, 2, 1, 1, 0]
    assert sorted(paths(rest) + paths(val)) == sorted(paths(data))
    assert (rest.split, val.split, val.classes) == ("rest-of-test", "val-of-test", data.classes)
    assert [int(path.split(".")[0]) for path in paths(val)] == sorted(int(path.split(".")[0]) for path in paths(val))


def test_the_choice_is_the_seeds():
    data = labeled(30, 30)
    first, again, other = (paths(tpt_lib.evaluation.split_validation(data, 0.5, seed=seed)[1]) for seed in (0, 0, 1))
    assert first == again != other
    assert len(first) == 30


def test_what_cannot_be_held_out():
    with pytest.raises(ValueError, match=r"split_validation: fraction must be between 0 and 1, but got 1"):
        tpt_lib.evaluation.split_validation(labeled(3, 3), 1.0)
    with pytest.raises(ValueError, match=r"every class of some has a single sample"):
        tpt_lib.evaluation.split_validation(labeled(1, 1))
