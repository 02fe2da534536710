"""Run files that are read, and the parts of runs that are merged."""

import json

import pytest
from support.runs import FOUR, header, row, said, write
from support.systems import needs_pipes

import tpt_lib
from tpt_lib.evaluation.run_file import RunFile, error_row, merge_run_files, read_run, result_row, run_header


def top(seeds=(0,), n=4):
    return run_header("pets", "test", ("cat", "dog"), ("zero-shot", "TPT"), seeds, n, {"model": "RN50"})


def rows_of(*samples, seed=0):
    return [result_row(seed, i, FOUR[i]["truth"], FOUR[i]["methods"], {"TPT": 0.5}) for i in samples]


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
    with pytest.raises(ValueError, match=r"0 and .*2 belong to different runs, which differ in n, seeds"):
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


def test_a_row_with_results_takes_the_place_of_an_error(tmp_path):
    failed = error_row(0, 1, None, "OSError: stale")
    file = write(tmp_path / "run.jsonl", header(), [FOUR[0], failed, *FOUR[2:], FOUR[1]])
    assert read_run(file).rows == FOUR
    assert [said["errors"] for said in tpt_lib.Report.read(file).rows()] == [0, 0]
    one = write(tmp_path / "0", header(), [*FOUR[:1], failed])
    two = write(tmp_path / "1", header(), [{**failed, "error": "OSError: gone"}, *FOUR[2:]])
    (merged,) = tpt_lib.Report.read([one, two]).runs
    assert [row.get("error") for row in merged.rows] == [None, "OSError: gone", None, None]
    three = write(tmp_path / "2", header(), FOUR[1:2])
    assert tpt_lib.Report.read([three, one, two]).runs[0].rows == FOUR
    merge_run_files([three, one, two], tmp_path / "all")
    assert read_run(tmp_path / "all").rows == FOUR


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", r"1: no header\. Run the rank that writes it again"),
        (b"nonsense\n", r"1, line 1: expected the header of a run.*but got nonsense"),
        (b'{"kind": "run"}\n', r"1, line 1: 'dataset' of the header must be a str"),
        (json.dumps(header()).encode() + b"\n{\n", r"1, line 2: expected a row.*but got {.*Delete this line"),
        (json.dumps(header()).encode() + b'\n{"kind": "row"}\n', r"1, line 2: seed must be one of"),
    ],
)
def test_a_damaged_part_is_named_before_anything_is_written(tmp_path, content, message):
    good = write(tmp_path / "0", header(), FOUR)
    (tmp_path / "1").write_bytes(content)
    with pytest.raises(ValueError, match=message):
        merge_run_files([good, tmp_path / "1"], tmp_path / "all")
    assert not (tmp_path / "all").exists()


def test_what_is_merged_already_is_not_written_again(tmp_path, monkeypatch):
    part = write(tmp_path / "0", header(), FOUR)
    merge_run_files([part], tmp_path / "all")
    monkeypatch.setattr("pathlib.Path.write_bytes", None)
    merge_run_files([part], tmp_path / "all")


def test_older_files_and_newer_ones_are_read_together(tmp_path):
    shown = {
        "top5_probs": [0.9, 0.1],
        "zero_shot": {"index": 1, "top5": [1, 0], "top5_probs": [0.6, 0.4], "probs": [0.4, 0.6]},
    }
    new = [{**row(i, 0, zero_shot=said(0), TPT={**said(0), **shown}), "path": f"cat/{i}.png"} for i in (2, 3)]
    files = [write(tmp_path / "old", header(), FOUR[:2]), write(tmp_path / "new", header(), new)]
    report = tpt_lib.Report.read(files)
    assert report.runs[0].rows == (*FOUR[:2], *new)
    assert [one["n"] for one in report.rows()] == [4, 4]
    assert "top-1" in repr(report)


@needs_pipes
def test_a_device_is_not_read():
    with pytest.raises(ValueError, match="'/dev/zero' is a device"):
        read_run("/dev/zero")
