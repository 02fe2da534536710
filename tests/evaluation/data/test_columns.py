"""Find the columns of images and labels, and turn labels into classes."""

import re

import pytest

from tpt_lib.evaluation.data.columns import choose_column, class_labels


def labels(values, classes=None):
    return class_labels("x.csv", values, classes, "line {}".format)


def test_columns_are_named_or_guessed():
    columns = ["id", "File", "species", "label"]
    assert choose_column("x", columns, "image", None) == "File"
    assert choose_column("x", columns, "label", None) == "label"
    assert choose_column("x", columns, "label", "species") == "species"
    assert choose_column("x", columns, "image", None, ["id"]) == "id"  # by its type


@pytest.mark.parametrize(
    ("columns", "named", "message"),
    [
        (
            ["a", "b"],
            None,
            "x: no column is the image; its columns are 'a', 'b'. Pass image='…', the name of the column",
        ),
        (
            ["image", "path"],
            None,
            "x: 2 columns may be the image, 'image', 'path'; its columns are 'image', 'path'. Pass",
        ),
        (["image"], "img", "x: there is no column 'img', which was passed as image; its columns are 'image'"),
    ],
)
def test_errors_list_the_columns(columns, named, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        choose_column("x", columns, "image", named)


def test_labels_are_names_or_numbers():
    assert labels(["dog", " cat", "dog"]) == ([1, 0, 1], ("cat", "dog"))
    assert labels(["dog", "cat"], ["dog", "cat", "fox"]) == ([0, 1], ("dog", "cat", "fox"))
    assert labels(["1", "0"], ["cat", "dog"]) == labels([1, 0], ["cat", "dog"]) == ([1, 0], ("cat", "dog"))
    assert labels(["1", "0"], ["1", "0"]) == ([0, 1], ("1", "0"))  # names, though they are digits


@pytest.mark.parametrize(
    ("values", "classes", "message"),
    [
        (["cat", ""], None, "x.csv: line 1 has no label"),
        (["cat", None, None], None, "x.csv: line 1 has no label (2 such samples)"),
        ([0, 1], None, "x.csv: labels are numbers, 0..1, which do not name the classes: pass classes=[…]"),
        (["0", "2"], ["a", "b"], "x.csv: line 1 has a label outside 0..1, the 2 classes 'a', 'b': 2"),
        ([-1, 0], ["a", "b"], "x.csv: line 0 has a label outside 0..1, the 2 classes 'a', 'b': -1"),
        (["a", "c"], ["a", "b"], "x.csv: line 1 has a label that is none of the 2 classes 'a', 'b': 'c'"),
        (["a", "7"], None, "x.csv: labels are names, but line 1 has the number '7'"),
        ([0, 0.5], ["a", "b"], "x.csv: the label of line 1 must be an int, the index of its class, but got 0.5"),
        (["crane"], ["crane", "kite", "crane"], "x.csv: labels are names, but classes has 'crane' twice"),
        (["a"], "a", "load_dataset: classes must be a list of names, but got 'a'"),
    ],
)
def test_bad_labels_are_named_by_their_place(values, classes, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        labels(values, classes)
