"""Run files: written, resumed, read, merged; what is wrong in them, by line."""

import json

import pytest
from support.runs import FOUR, header, write

import tpt_lib
from tpt_lib.evaluation.run_file import RunFile, merge_run_files, read_run, result_row, run_header

SETTINGS = {"views": {"n_views": 8}, "model": "RN50"}


def top(methods=("zero-shot", "TPT"), seeds=(0,), n=4, **settings):
    return run_header("pets", "test", ("cat", "dog"), methods, seeds, n, {**SETTINGS, **settings})


def rows_of(*samples, seed=0):
    return [result_row(seed, i, FOUR[i]["truth"], FOUR[i]["methods"], {"TPT": 0.5}) for i in samples]


def test_what_is_appended_is_in_the_file_before_it_is_closed(tmp_path):
    path = tmp_path / "new folder/run.jsonl"
    with RunFile(path, top()) as run:
        run.append(rows_of(0, 1))
        found = read_run(path)
        assert found.header == run.header == top()
        assert list(found.rows) == run.rows == rows_of(0, 1)


@pytest.mark.parametrize("cut", [0, 1, 40])
def test_a_run_is_resumed_after_its_last_complete_line(tmp_path, cut):
    path = tmp_path / "run.jsonl"
    with RunFile(path, top()) as run:
        run.append(rows_of(0, 1, 2))
    path.write_bytes(path.read_bytes()[: -cut or None])
    kept = [0, 1] if cut else [0, 1, 2]
    with RunFile(path, top()) as run:
        assert run.rows == rows_of(*kept)
        run.append(rows_of(3))
    assert list(read_run(path).rows) == rows_of(*kept, 3)
    assert read_run(path).notes == ()


def test_a_header_that_was_cut_off_is_written_again(tmp_path):
    path = tmp_path / "run.jsonl"
    path.write_text('{"kind": "ru')
    with RunFile(path, top()) as run:
        assert run.rows == []
    assert read_run(path).header == top()


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (top(n=5), "n is 4 there and 5 here"),
        (top(seeds=(0, 1)), r"seeds is \[0\] there and \[0, 1\] here"),
        (top(views={"n_views": 64}), r"settings\.views\.n_views is 8 there and 64 here"),
        (top(extra=1, model="RN101"), r"settings\.extra is None there and 1 here; settings\.model is 'RN50' there and"),
    ],
)
def test_a_run_with_different_settings_is_refused_and_left_alone(tmp_path, other, message):
    path = tmp_path / "run.jsonl"
    with RunFile(path, top()) as run:
        run.append(rows_of(0))
    before = path.read_bytes()
    with pytest.raises(ValueError, match=rf"run.jsonl' belongs to a run with different settings \({message}.*resume"):
        RunFile(path, other)
    assert path.read_bytes() == before


def test_a_file_of_another_kind_is_refused_and_left_alone(tmp_path):
    path = tmp_path / "notes.txt"
    path.write_text("precious\n")
    with pytest.raises(ValueError, match=r"line 1: expected the header of a run.*but got precious"):
        RunFile(path, top())
    assert path.read_text() == "precious\n"


def test_other_versions_of_packages_are_the_same_run(tmp_path):
    with RunFile(tmp_path / "run.jsonl", {**top(), "versions": {"torch": "1.0"}}) as run:
        run.append(rows_of(0))
    with RunFile(tmp_path / "run.jsonl", top()) as run:
        assert (run.header["versions"], len(run.rows)) == ({"torch": "1.0"}, 1)


def test_files_of_ranks_are_merged_in_the_order_of_one_process(tmp_path):
    parts = {"0": [*rows_of(0, 2, seed=1), *rows_of(0)], "1": [*rows_of(1, seed=1), *rows_of(1)]}
    for name, rows in parts.items():
        with RunFile(tmp_path / name, top(seeds=(1, 0))) as run:
            run.append(rows)
    merge_run_files([tmp_path / name for name in parts], tmp_path / "all")
    _, *lines = (tmp_path / "all").read_text().splitlines()
    assert [json.loads(line) for line in lines] == [*rows_of(0, 1, 2, seed=1), *rows_of(0, 1)]
    assert {file.name for file in tmp_path.iterdir()} == {"0", "1", "all"}
    with RunFile(tmp_path / "2", top(n=9)):
        pass
    with pytest.raises(ValueError, match="the files belong to different runs"):
        merge_run_files([tmp_path / "0", tmp_path / "2"], tmp_path / "all")


def test_a_file_is_read_as_it_was_written(tmp_path):
    run = read_run(write(tmp_path / "run.jsonl", header(), FOUR))
    assert run.rows == FOUR
    assert (run.label, run.model, run.n_classes, run.notes) == ("pets", "RN50", 2, ())


@pytest.mark.parametrize("cut", [1, 30, 100])
def test_a_last_line_that_was_cut_off_is_left_out_and_said(tmp_path, cut):
    path = write(tmp_path / "run.jsonl", header(), FOUR)
    path.write_bytes(path.read_bytes()[: -1 - cut])
    found = tpt_lib.Report.read(path)
    assert [row["n"] for row in found.rows()] == [3, 3]
    assert "run.jsonl: the last line was incomplete" in repr(found)
    assert "not finished, 3 of 4 rows" in repr(found)


def test_a_last_line_without_its_newline_counts(tmp_path):
    found = tpt_lib.Report.read(write(tmp_path / "run.jsonl", header(), FOUR, end=""))
    assert found.rows()[0]["n"] == 4
    assert "incomplete" not in repr(found)


def test_shards_of_a_run_are_put_together(tmp_path):
    whole = tpt_lib.Report.read(write(tmp_path / "whole", header(), FOUR))
    twice = {**FOUR[2], "seconds": {"TPT": 9.0}}
    one = write(tmp_path / "0", header(), [FOUR[2], FOUR[0]])
    two = write(tmp_path / "1", header(), [FOUR[3], twice, FOUR[1]])
    assert tpt_lib.Report.read([one, two]).rows() == whole.rows()
    (merged,) = tpt_lib.Report.read([one, two]).runs
    assert merged.rows == FOUR
    assert tpt_lib.Report.read([one]).rows() != whole.rows()
    differing = write(tmp_path / "2", header(), [{**FOUR[0], "truth": 1}])
    with pytest.raises(ValueError, match="pets: two rows of seed 0, sample 0 differ"):
        tpt_lib.Report.read([one, differing])
