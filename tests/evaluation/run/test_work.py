"""What is done with each sample, here and in a process of its own."""

import multiprocessing

import pytest
import torch
from support.noise_runs import METHODS, NAMES, Noise, OwnClip, content, run

import tpt_lib
from tpt_lib.evaluation.run.work import Work
from tpt_lib.methods.cases import as_cases
from tpt_lib.views.settings import ViewSettings


def work_of(model, **options):
    prompts = tpt_lib.class_prompts(model, NAMES)
    views = ViewSettings(n_views=4)
    return Work(model, as_cases("test", METHODS, prompts), Noise(bad=[1]), views, options.get("strict", False))


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


def test_a_label_that_is_no_class_is_an_error_of_its_sample(tmp_path):
    class Odd(Noise):
        def __getitem__(self, i):
            image, label = super().__getitem__(i)
            return image, "cat" if i == 1 else label

    run(tmp_path / "run.jsonl", Odd(3))
    rows = content(tmp_path / "run.jsonl")[1:]
    assert ["error" in row for row in rows] == [False, True, False]
    assert "cat" in rows[1]["error"]
