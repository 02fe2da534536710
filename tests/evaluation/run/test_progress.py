"""The progress bar."""

import re

from support.noise_runs import Noise, content, run


def test_it_shows_the_accuracy_so_far(tmp_path, capsys):
    run(tmp_path / "run.jsonl", Noise(3), progress=True)
    err = capsys.readouterr().err
    rows = content(tmp_path / "run.jsonl")[1:]
    right = sum(row["methods"]["zero-shot"]["index"] == row["truth"] for row in rows)
    assert re.findall(r"zero-shot=([\d.]+%)", err)[-1] == f"{right / 3:.1%}"
    assert "3/3" in err


def test_it_counts_what_a_resumed_run_has(tmp_path, capsys):
    run(tmp_path / "run.jsonl", Noise(3, bad=[0]))
    path = tmp_path / "run.jsonl"
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:3]))
    run(path, Noise(3, bad=[0]), progress=True)
    err = capsys.readouterr().err
    rows = content(path)[2:]  # the first is an error: a missing file, which is tried again and not counted as wrong
    right = sum(row["methods"]["TPT"]["index"] == row["truth"] for row in rows)
    assert re.findall(r"TPT=([\d.]+%)", err)[-1] == f"{right / 2:.1%}"
    assert "1/3" in err
    assert "3/3" in err


def test_it_is_quiet_where_nobody_looks(tmp_path, capsys):
    run(tmp_path / "run.jsonl", Noise(3))
    run(tmp_path / "other.jsonl", Noise(3), progress=False)
    assert capsys.readouterr().err == ""
