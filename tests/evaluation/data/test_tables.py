"""Tables of paths and labels, made as files."""

import builtins
import re

import pytest
from support.command_line import save
from support.miniatures import put, text

import tpt_lib
from tpt_lib.evaluation import load_dataset


@pytest.fixture
def photos(tmp_path):
    put(*(tmp_path / f"photos/{i}.jpg" for i in range(3)))
    return tmp_path


def test_a_csv_file_of_paths_and_names(photos):
    text(photos / "test.csv", "id,path,label\n7,photos/0.jpg,dog\n8,photos/2.jpg,cat\n")
    found = load_dataset(photos / "test.csv")
    assert (found.name, found.classes, found.labels, found.root) == ("test", ("cat", "dog"), [1, 0], str(photos))
    assert found.samples.paths == (str(photos / "photos/0.jpg"), str(photos / "photos/2.jpg"))
    assert load_dataset(str(photos / "test.csv"), classes=["dog", "cat"]).labels == [0, 1]


def test_a_tsv_file_of_numbers_with_named_columns_and_a_root(photos):
    text(photos / "lists/val.tsv", 'photo\tclass\tspecies\n0.jpg\tx\t1\n"1.jpg"\tx\t0\n\n')
    with pytest.raises(
        ValueError, match=r"no column is the image; its columns are 'photo', 'class', 'species'\. Pass image="
    ):
        load_dataset(photos / "lists/val.tsv", photos / "photos", classes=["cat", "dog"])
    options = {"image": "photo", "label": "species", "split": "val"}
    found = load_dataset(photos / "lists/val.tsv", photos / "photos", classes=["cat", "dog"], **options)
    assert (found.labels, found.split, found.classes) == ([1, 0], "val", ("cat", "dog"))
    with pytest.raises(ValueError, match=r"labels are numbers, 0\.\.1, which do not name the classes: pass classes="):
        load_dataset(photos / "lists/val.tsv", photos / "photos", **options)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ("", "is empty; expected a header line with the names of the columns"),
        ("path,label\n", "has no rows"),
        ("photos/0.jpg,cat\n", "no column is the image; its columns are 'photos/0.jpg', 'cat'"),
        ("path,name\nphotos/0.jpg,cat\n", "no column is the label; its columns are 'path', 'name'. Pass label='…'"),
        ("path,path\nphotos/0.jpg,cat\n", "columns must differ, but the header is 'path', 'path'"),
        ("path,label\nphotos/0.jpg,cat\n\nphotos/1.jpg\n", "line 4 has 1 values, but the header has 2 columns"),
        ("path,label\nphotos/0.jpg,cat\n ,cat\n", "line 3 must have a path, but has ' '"),
        ("path,label\nphotos/0.jpg,cat\nphotos/1.jpg,\n", "line 3 has no label"),
        ("path,label\nphotos/0.jpg,fox\n", "line 2 has a label that is none of the 2 classes 'cat', 'dog': 'fox'"),
        (
            "path,label\nphotos/0.jpg,cat\nphotos/1.jpg,dog\nphotos/0.jpg,cat\n",
            "line 4 has the image of line 2, .* with the same label; remove one of them",
        ),
        ("path,label\nphotos/0.jpg,cat\nphotos/0.jpg,dog\n", "line 3 has the image of line 2, .* with another label"),
        ('path,label\n"photos/0.jpg,cat\n', "line 2 is broken: unexpected end of data"),
    ],
)
def test_bad_rows_are_named_by_their_line(photos, rows, message):
    text(photos / "test.csv", rows)
    with pytest.raises(ValueError, match=rf"load_dataset: '.*test\.csv':? {message}"):
        load_dataset(photos / "test.csv", classes=["cat", "dog"])


def test_missing_images(photos):
    text(photos / "test.csv", "path,label\nphotos/0.jpg,cat\nphotos/9.jpg,dog\n")
    says = r"1 of 2 images are missing, first '.*9\.jpg', line 3\. Relative paths start from the folder of the file"
    with pytest.raises(FileNotFoundError, match=says):
        load_dataset(photos / "test.csv")
    found = load_dataset(photos / "test.csv", subset=True)
    assert (found.labels, found.classes) == ([0], ("cat", "dog"))
    with pytest.raises(FileNotFoundError, match="2 of 2 images are missing"):
        load_dataset(photos / "test.csv", photos / "photos", subset=True)


def test_a_table_that_is_not_there(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"there is no file '.*test\.csv'"):
        load_dataset(tmp_path / "test.csv")
    text(tmp_path / "test.csv", "path,label\na,b")
    with pytest.raises(FileNotFoundError, match="the root '/no/such/place' is not a folder"):
        load_dataset(tmp_path / "test.csv", "/no/such/place")
    with pytest.raises(ValueError, match=r"image and label name columns, which '.*' does not have; leave them out"):
        load_dataset(tmp_path, image="path")


def parquet(file, **columns):
    import pyarrow.parquet

    pyarrow.parquet.write_table(pyarrow.table(columns), file)


def test_a_parquet_file(photos):
    parquet(photos / "test.parquet", path=["photos/0.jpg", "photos/1.jpg"], label=["dog", "cat"], size=[1, 2])
    found = load_dataset(photos / "test.parquet")
    assert (found.name, found.classes, found.labels) == ("test", ("cat", "dog"), [1, 0])
    parquet(photos / "numbers.parquet", path=["photos/0.jpg", "photos/1.jpg"], label=[1, 0])
    assert load_dataset(photos / "numbers.parquet", classes=["cat", "dog"]).labels == [1, 0]


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"path": ["a.jpg", None], "label": ["cat", "dog"]}, "row 1 must have a path, but has None"),
        ({"path": ["a.jpg", "b.jpg"], "label": ["cat", None]}, "row 1 has no label"),
        ({"path": ["a.jpg"], "kind": ["cat"]}, "no column is the label; its columns are 'path', 'kind'"),
        (
            {"image": [b"pixels"], "label": ["cat"]},
            "the column 'image' must have the paths of images, but is of type binary",
        ),
        ({"path": [], "label": []}, "the column 'path' must have the paths of images, but is of type null"),
    ],
)
def test_bad_parquet_files(photos, columns, message):
    parquet(photos / "test.parquet", **columns)
    with pytest.raises(ValueError, match=re.escape(message)):
        load_dataset(photos / "test.parquet")


def test_a_parquet_file_that_was_cut_short(photos):
    parquet(photos / "test.parquet", path=["photos/0.jpg"], label=["dog"])
    whole = (photos / "test.parquet").read_bytes()
    (photos / "test.parquet").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(ValueError, match=r"'.*test\.parquet' is not a Parquet file, or was cut short"):
        load_dataset(photos / "test.parquet")


def test_parquet_needs_pyarrow(photos, monkeypatch):
    text(photos / "test.parquet", "x")
    real = builtins.__import__

    def without(name, *args):
        if name.startswith("pyarrow"):
            raise ImportError(name)
        return real(name, *args)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(ImportError, match=r'a Parquet file needs pyarrow: pip install "tpt_lib\[datasets\]"'):
        load_dataset(photos / "test.parquet")


def test_a_table_is_evaluated(tmp_path):
    for i in range(3):
        save(tmp_path / f"photos/{i}.png", i)
    text(tmp_path / "test.csv", "path,label\n" + "".join(f"photos/{i}.png,{i % 2}\n" for i in range(3)))
    data = load_dataset(tmp_path / "test.csv", classes=["cat", "dog"])
    tpt_lib.evaluate(tpt_lib.load_tiny(), data, "zero_shot", out=tmp_path / "run.jsonl", n_views=1)
    rows = tpt_lib.evaluation.read_run(tmp_path / "run.jsonl").rows
    assert [(row["path"], row["truth"]) for row in rows] == [(f"photos/{i}.png", i % 2) for i in range(3)]
