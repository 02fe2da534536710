"""Datasets of the Hugging Face library, made in memory and on disk."""

import io
import pickle

import pytest
import torch
from PIL import Image
from support.shards import encoded

import tpt_lib
from tpt_lib.evaluation import dataset_identity, load_dataset
from tpt_lib.views.reading import ImageError, read_image

datasets = pytest.importorskip("datasets")

FEATURES = datasets.Features(
    {"img": datasets.Image(), "id": datasets.Value("int64"), "fine": datasets.ClassLabel(names=["cat", "dog"])}
)


def rows(count=4, features=FEATURES, **columns):
    values = {
        "img": [{"bytes": encoded(i), "path": None} for i in range(count)],
        "id": list(range(count)),
        "fine": [i % 2 for i in range(count)],
    }
    return datasets.Dataset.from_dict({**values, **columns}, features=features)


def pixels(seed):
    return read_image(Image.open(io.BytesIO(encoded(seed))))


def test_columns_and_classes_are_found_by_their_types(tmp_path):
    rows().to_parquet(tmp_path / "x.parquet")
    on_disk = datasets.Dataset.from_parquet(str(tmp_path / "x.parquet"), cache_dir=str(tmp_path / "cache"))
    for source in (rows(), on_disk, rows().with_format("torch"), rows(8).select(range(4))):
        found = load_dataset(source)
        assert (found.classes, found.labels) == (("cat", "dog"), [0, 1, 0, 1])
        assert all(torch.equal(read_image(found.samples[i][0]), pixels(i)) for i in range(4))
    assert torch.equal(read_image(load_dataset(rows().select([3, 1])).samples[0][0]), pixels(3))
    assert pickle.loads(pickle.dumps(found)).samples[2][1] == 0


def test_splits():
    parts = datasets.DatasetDict({"train": rows(6), "validation": rows(2)})
    found = load_dataset(parts, split="validation")
    assert (len(found), found.split) == (2, "validation")
    with pytest.raises(ValueError, match="load_dataset: split must be one of train, validation, but got 'test'"):
        load_dataset(parts)
    one = rows()
    one._split = datasets.Split.VALIDATION
    assert load_dataset(one).split == "validation"


def test_columns_are_named_or_listed():
    two = rows().add_column("coarse", [1, 1, 0, 0])
    found = load_dataset(two, label="coarse", classes=["a", "b"])
    assert (found.labels, found.classes) == ([1, 1, 0, 0], ("a", "b"))
    with pytest.raises(
        ValueError, match="there is no column 'kind', which was passed as label; its columns are 'img', 'id', "
    ):
        load_dataset(two, label="kind")
    with pytest.raises(ValueError, match="no column is the image; its columns are 'id', 'fine'"):
        load_dataset(rows().remove_columns("img"))
    with pytest.raises(ValueError, match="no column is the label; its columns are 'img', 'id'"):
        load_dataset(rows().remove_columns("fine"))


def test_labels_may_be_texts_and_images_paths(tmp_path):
    (tmp_path / "1.png").write_bytes(encoded(1))
    source = datasets.Dataset.from_dict({"path": [str(tmp_path / "1.png")] * 2, "label": ["dog", "cat"]})
    found = load_dataset(source)
    assert (found.classes, found.labels, found.samples[0][0]) == (("cat", "dog"), [1, 0], str(tmp_path / "1.png"))
    images = source.cast_column("path", datasets.Image())
    assert load_dataset(images, image="path").samples[0][0] == str(tmp_path / "1.png")


@pytest.mark.parametrize(
    ("source", "options", "message"),
    [
        (lambda: rows(fine=[0, 1, -1, -1]), {}, r"row 2 has a label outside 0\.\.1, .*: -1 \(2 such samples\)"),
        (lambda: rows(fine=[0, 1, None, 1]), {}, "row 2 has no label"),
        (lambda: rows(0), {}, "the Dataset has no rows"),
        (lambda: rows(), {"label": "id"}, r"labels are numbers, 0\.\.3, which do not name the classes"),
        (
            lambda: rows(),
            {"classes": ["a", "b", "c"]},
            "has 2 classes, 'cat', 'dog', so classes must be 2 names, but got 3",
        ),
        (lambda: rows(), {"root": "/data"}, "root and subset have no effect on a Dataset"),
    ],
)
def test_what_is_refused(source, options, message):
    with pytest.raises(ValueError, match=message):
        load_dataset(source(), **options)


def test_names_in_another_order_are_warned_about():
    with pytest.warns(UserWarning, match="class 0 is 'dog' and should be 'cat'"):
        load_dataset(rows(), classes=["dog", "cat"])


def test_a_bad_image_is_an_image_error():
    found = load_dataset(rows(2, img=[{"bytes": encoded(0), "path": None}, {"bytes": b"no image", "path": None}]))
    with pytest.raises(ImageError, match="the image of row 1 cannot be opened as an image"):
        found.samples[1]


def test_a_streaming_dataset_is_a_stream():
    found = load_dataset(rows().to_iterable_dataset())
    assert (found.classes, found.labels) == (("cat", "dog"), [0, 1, 0, 1])
    assert all(torch.equal(found.samples[i][0], pixels(i)) for i in (0, 2, 1))


@pytest.mark.slow
def test_it_is_evaluated_and_resumed(tmp_path):
    source = rows(6)
    assert dataset_identity(load_dataset(source)) == dataset_identity(load_dataset(rows(6)))
    options = {"out": tmp_path / "run.jsonl", "n_views": 1, "num_workers": 2}
    report = tpt_lib.evaluate(tpt_lib.load_tiny(), load_dataset(source), "zero_shot", **options)
    assert report.rows()[0]["n"] == 6
    with pytest.raises(ValueError, match=r"different settings \(settings\.data\.digest"):
        tpt_lib.evaluate(tpt_lib.load_tiny(), load_dataset(source.select([1, 0, 2, 3, 4, 5])), "zero_shot", **options)
