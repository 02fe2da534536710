"""Thumbnails: from which images they are made, and which are refused."""

import base64
import io

import PIL.Image
import pytest
import torch
from support.command_line import save, tiny
from support.runs import header, report, row, said

import tpt_lib
from tpt_lib.evaluation.page.gallery import changes_of
from tpt_lib.evaluation.page.thumbnails import image_finder, thumbnails_of


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder of pictures that was evaluated, with the run in it; half of its rows are then said to be fixed."""
    root = tmp_path_factory.mktemp("pictures")
    for i in range(6):
        save(root / "photos" / ("cat" if i % 2 else "dog") / f"{i}.png", seed=i)
    data = tpt_lib.load_dataset(root / "photos")
    tpt_lib.evaluate(tiny(), data, ["zero_shot", "view_average"], out=root / "run.jsonl", n_views=2, num_workers=0)
    return root


def changed(folder):
    """The runs of the folder, as if the second method was right on every image and the first wrong."""
    (run,) = tpt_lib.Report.read(folder / "run.jsonl").runs
    for one in run.rows:
        one["methods"]["zero-shot"]["index"] = 1 - one["truth"]
        one["methods"]["averaged prediction"]["index"] = one["truth"]
    return [run]


def pictures(runs, dataset, most=200):
    (found,) = thumbnails_of(changes_of(runs), image_finder(dataset, runs), most)
    urls = {sample: url.removeprefix("data:image/jpeg;base64,") for sample, url in found.items()}
    return {sample: PIL.Image.open(io.BytesIO(base64.b64decode(text))) for sample, text in urls.items()}


def test_from_the_folder_or_the_dataset(folder):
    runs, data = changed(folder), tpt_lib.load_dataset(folder / "photos")
    found = pictures(runs, folder / "photos")
    assert sorted(found) == list(range(6))
    assert {image.size for image in found.values()} == {(50, 40)}
    assert pictures(runs, data).keys() == found.keys()
    assert pictures(runs, str(folder / "photos"), most=2).keys() == {0, 3}, "spread over all"
    assert pictures(runs, None) == pictures(runs, data, most=0) == {}


def test_large_images_become_small():
    data = tpt_lib.EvalSet("pets", [(torch.rand(3, 400, 600), 0)], ("class 0", "class 1"))
    found = report((header(n=1), [row(0, 0, zero_shot=said(1), TPT=said(0))]))
    assert pictures(found.runs, data)[0].size == (128, 85)


def test_queries_of_bongard_problems():
    data = tpt_lib.load_tiny_bongard(n=2)
    rows = [row(i, "positive", a=said(0), b=said(1)) for i in range(4)]
    found = report(({**header(data.name, methods=("a", "b"), n=4), "classes": []}, rows))
    assert pictures(found.runs, data).keys() == {0, 1, 2, 3}


def test_a_missing_or_broken_image_is_shown_as_text(folder, tmp_path):
    runs = changed(folder)
    copy = tmp_path / "copy"
    for one in runs[0].rows[:3]:
        source = folder / "photos" / one["path"]
        (copy / one["path"]).parent.mkdir(parents=True, exist_ok=True)
        (copy / one["path"]).write_bytes(source.read_bytes())
    runs[0].header["settings"]["data"]["images"] = {}
    (copy / runs[0].rows[0]["path"]).write_bytes(b"no image")
    assert pictures(runs, copy).keys() == {1, 2}


def test_no_file_outside_the_folder_is_read(folder, tmp_path):
    runs = changed(folder)
    inside, secret = tmp_path / "inside", tmp_path / "secret.png"
    save(inside / "own.png")
    save(secret)
    (inside / "link.png").symlink_to(secret)
    runs[0].header["settings"]["data"]["images"] = {}
    for one, path in zip(
        runs[0].rows, ("../secret.png", str(secret), "link.png", "own.png", "a\0b", "x" * 5000), strict=True
    ):
        one["path"] = path
    assert pictures(runs, inside).keys() == {3}


@pytest.mark.usefixtures("no_shape_checks")
def test_other_images_are_refused(folder, tmp_path):
    runs, data = changed(folder), tpt_lib.load_dataset(folder / "photos")
    with pytest.raises(FileNotFoundError, match="to_html: 'none' is not a folder; pass the one that has the images"):
        image_finder("none", runs)
    with pytest.raises(ValueError, match=r"has none of the images of the run; pass the folder that has '\w+/\d.png'"):
        image_finder(tmp_path, runs)
    for i in range(6):
        save(tmp_path / ("cat" if i % 2 else "dog") / f"{i}.png", seed=i + 100)
    with pytest.raises(ValueError, match="has different pixels than when it was evaluated"):
        image_finder(tmp_path, runs)
    with pytest.raises(ValueError, match="has 5 samples, but the run has 6; pass the dataset that was evaluated"):
        image_finder(data.take(range(5)), runs)
    with pytest.raises(ValueError, match=r"is not the one that was evaluated \(digest: \w+ there, \w+ here"):
        image_finder(data.take([1, 0, 2, 3, 4, 5]), runs)
    other = tpt_lib.EvalSet("pets", [(torch.rand(3, 8, 8), 0)], ("cat", "dog"))
    with pytest.raises(
        ValueError, match="the dataset is pets/test, but the runs are on photos/test; pass one of those"
    ):
        image_finder(other, runs)
    store = tpt_lib.encode_dataset(tiny(), data, tmp_path / "store", n_views=1, num_workers=0)
    with pytest.raises(
        TypeError, match="must be the EvalSet that was evaluated, or a folder of images, but got FeatureStore"
    ):
        image_finder(store, runs)
    for one in runs[0].rows:
        one["path"] = None
    with pytest.raises(ValueError, match="the run has no paths; pass the dataset that was evaluated"):
        image_finder(folder, runs)
