"""What is done with each sample, here and in a process of its own."""

import multiprocessing

import PIL.Image
import pytest
import torch
import torchvision
from support.noise_runs import METHODS, NAMES, Noise, OwnClip, content, model, run

import tpt_lib
from tpt_lib import encode_views
from tpt_lib.evaluation import ImageFiles, read_run
from tpt_lib.evaluation.run import work as work_module
from tpt_lib.evaluation.run.work import Work
from tpt_lib.methods import MethodEntry
from tpt_lib.methods.cases import as_cases
from tpt_lib.views.settings import ViewSettings


def work_of(model, **options):
    prompts = tpt_lib.class_prompts(model, NAMES)
    views = ViewSettings(n_views=4)
    return Work(model, as_cases("test", METHODS, prompts), Noise(bad=[1]), views, options.get("strict", False))


def _brightness(model, prompts, views):
    return tpt_lib.Prediction(prompts.names, views[0].mean() * torch.arange(6.0))


brightness = MethodEntry("brightness", "brightness", _brightness, needs=("views",))


def without_seconds(rows):
    return [{key: value for key, value in row.items() if key != "seconds"} for row in rows]


@pytest.mark.slow
def test_it_can_be_sent_to_a_spawned_process():
    work = work_of(OwnClip())
    here = work(3, [0, 1, 2])  # used before it is sent
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        torch_threads = pool.apply(torch.set_num_threads, (1,))
        there = pool.apply(work, (3, [0, 1, 2]))
    assert torch_threads is None
    assert [row["sample"] for row in here] == [0, 1, 2]
    assert "error" in here[1]
    assert without_seconds(there) == without_seconds(here)


def test_a_bad_image_is_a_row_with_its_error(tmp_path):
    report = run(tmp_path / "run.jsonl", Noise(bad=[2, 7]), batch_size=4)
    _, *rows = content(tmp_path / "run.jsonl")
    assert [row["sample"] for row in rows] == list(range(12))
    assert [row["sample"] for row in rows if "error" in row] == [2, 7]
    assert "file2.png" in rows[2]["error"]
    assert rows[2]["truth"] == 2
    assert "methods" not in rows[2]
    assert all(said["errors"] == 2 and said["n"] == 10 for said in report.rows())


@pytest.mark.parametrize("num_workers", [0, 1])
def test_strict_stops_at_a_bad_image(num_workers, tmp_path):
    message = r"evaluate: sample 2 cannot be used: .*file2\.png.*; strict=False records it as a row"
    with pytest.raises(ValueError, match=message):
        run(tmp_path / "run.jsonl", Noise(bad=[2, 7]), strict=True, num_workers=num_workers)
    assert [row["sample"] for row in content(tmp_path / "run.jsonl")[1:]] == [0, 1]


def test_all_of_a_group_may_be_bad(tmp_path):
    report = run(tmp_path / "run.jsonl", Noise(4, bad=[0, 1]), batch_size=2)
    assert [("error" in row) for row in content(tmp_path / "run.jsonl")[1:]] == [True, True, False, False]
    assert {said["n"] for said in report.rows()} == {2}


@pytest.mark.parametrize("odd", ["cat", 0.7, -1, 6, None, torch.tensor(2.0)])
def test_a_label_that_is_no_class_is_an_error_of_its_sample(odd, tmp_path):
    class Odd(Noise):
        def __getitem__(self, i):
            image, label = super().__getitem__(i)
            return image, odd if i == 1 else label

    report = run(tmp_path / "run.jsonl", Odd(3))
    rows = content(tmp_path / "run.jsonl")[1:]
    assert ["error" in row for row in rows] == [False, True, False]
    assert rows[1]["error"] == f"ValueError: a label must be the index of a class, an int from 0 to 5, but got {odd!r}"
    assert rows[1]["truth"] is None
    assert [said["errors"] for said in report.rows()] == [1, 1]


def test_rows_have_the_path_below_the_root(tmp_path):
    def save(i):
        PIL.Image.fromarray(Noise()[i][0].permute(1, 2, 0).numpy()).save(tmp_path / f"images/{i}.png")
        return tmp_path / f"images/{i}.png"

    (tmp_path / "images").mkdir()
    (tmp_path / "images/2.png").write_bytes(b"no image")
    files = [save(0), save(1), tmp_path / "images/2.png", tmp_path / "images/3.png"]
    data = tpt_lib.EvalSet("noise", ImageFiles(files, [0, 1, 2, 3]), NAMES, root=str(tmp_path))
    tpt_lib.evaluate(model(), data, "zero_shot", out=tmp_path / "run.jsonl", n_views=2, num_workers=0)
    rows = content(tmp_path / "run.jsonl")[1:]
    assert [row["path"] for row in rows] == [f"images/{i}.png" for i in range(4)]
    assert [row.get("error", "").split(":")[0] for row in rows] == ["", "", "ImageError", "MissingImageError"]
    run(tmp_path / "tensors.jsonl", Noise(1))
    assert [row["path"] for row in content(tmp_path / "tensors.jsonl")[1:]] == [None]


def test_a_folder_of_images_that_reads_them_itself_has_paths(tmp_path):
    for i, name in enumerate(("cat", "dog")):
        (tmp_path / name).mkdir()
        PIL.Image.new("RGB", (40, 50), (90 * i, 0, 0)).save(tmp_path / name / f"{i}.png")
    data = tpt_lib.load_dataset(torchvision.datasets.ImageFolder(tmp_path))
    tpt_lib.evaluate(model(), data, "zero_shot", out=tmp_path / "run.jsonl", n_views=2, num_workers=0)
    paths = [row["path"] for row in content(tmp_path / "run.jsonl")[1:]]
    assert paths == [f"{tmp_path}/cat/0.png", f"{tmp_path}/dog/1.png"]


def test_rows_have_the_probabilities_of_the_top_classes(whole):
    prompts = tpt_lib.class_prompts(model(), NAMES)
    row = content(whole)[4]
    views = tpt_lib.augment_views(Noise()[row["sample"]][0], model().image_spec, n_views=8)
    want = tpt_lib.tpt_predict(model(), prompts, tpt_lib.encode_views(model(), views))
    tuned, plain = row["methods"]["TPT"], row["methods"]["zero-shot"]
    assert tuned["top5_probs"] == pytest.approx([p for _, p in want.top(5)], abs=1e-5)
    assert tuned["zero_shot"]["top5"] == plain["top5"]
    assert tuned["zero_shot"]["index"] == plain["index"]
    assert tuned["zero_shot"]["top5_probs"] == pytest.approx(plain["top5_probs"], abs=1e-5)
    assert tuned["zero_shot"]["probs"] == pytest.approx(want.zero_shot.probs[tuned["top5"]].tolist(), abs=1e-5)
    assert "zero_shot" not in plain


def test_views_are_encoded_only_for_methods_that_need_features(tmp_path, monkeypatch):
    encoded = []
    monkeypatch.setattr(work_module, "encode_views", lambda *args: encoded.append(args) or encode_views(*args))
    for methods, count, seconds in (
        ([brightness], 0, {"views"}),
        ([brightness, "zero_shot"], 1, {"views", "features"}),
    ):
        path = tmp_path / f"{count}.jsonl"
        run(path, Noise(1), methods=methods)
        (row,) = read_run(path).rows
        assert len(encoded) == count
        assert row["seconds"].keys() - row["methods"].keys() == seconds


def overwrite(model, prompts, features):
    found = tpt_lib.zero_shot_predict(model, prompts, features.clone())
    features.zero_()
    return found


@pytest.mark.parametrize("batch_size", [1, 2])
def test_a_method_that_writes_into_its_features_changes_no_other(batch_size, tmp_path):
    def darken(model, prompts, views):
        return tpt_lib.zero_shot_predict(model, prompts, encode_views(model, views.zero_()))

    entry = MethodEntry("darken", "darken", darken, needs=("views",))
    methods = {"features": overwrite, "views": entry, "brightness": brightness, "TPT": "tpt"}
    run(tmp_path / "run.jsonl", Noise(2), methods=methods, batch_size=batch_size)
    run(tmp_path / "alone.jsonl", Noise(2), methods={"brightness": brightness, "TPT": "tpt"}, batch_size=batch_size)
    for got, want in zip(content(tmp_path / "run.jsonl")[1:], content(tmp_path / "alone.jsonl")[1:], strict=True):
        assert {name: got["methods"][name] for name in want["methods"]} == want["methods"]
