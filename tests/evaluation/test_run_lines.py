"""The lines of run files, and which row of a sample counts."""

import os
import socket

import pytest
from support.runs import FOUR
from support.systems import existing, needs_pipes

from tpt_lib.evaluation.run_lines import check_is_file, complete_lines, parse_line, settled_rows


def failed(row, error="MissingImageError: there is no file"):
    return {"kind": "row", "seed": row["seed"], "sample": row["sample"], "truth": None, "error": error}


@needs_pipes
def test_what_is_no_regular_file_is_refused_without_reading_it(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tmp_path / "socket"))
        for path, kind in {
            tmp_path: "a folder",
            tmp_path / "pipe": "a device, a pipe or a socket",
            tmp_path / "socket": "a device, a pipe or a socket",
            **dict.fromkeys(existing(["/dev/full", "/dev/zero"]), "a device, a pipe or a socket"),
        }.items():
            with pytest.raises(ValueError, match=f"'{path}' is {kind}; a run file must be a regular file"):
                check_is_file(path)
    (tmp_path / "file").touch()
    for path in (tmp_path / "file", tmp_path / "none", tmp_path / "file/below"):
        assert check_is_file(str(path)) == path


def test_a_line_counts_if_it_has_its_end():
    assert complete_lines(b"a\nb\nc") == [b"a\n", b"b\n"]
    assert complete_lines(b"a\n") == [b"a\n"]
    assert complete_lines(b"a") == complete_lines(b"") == []


def test_what_is_no_json_is_text():
    assert parse_line(b'{"a": 1}\n') == {"a": 1}
    assert parse_line(b"\xff\xfea") == "\ufffd\ufffda"
    assert parse_line(b"[" * 100_000) == "[" * 100_000


def test_results_count_before_errors_and_the_last_error_counts():
    one, two, three, _ = FOUR
    again = {**two, "seconds": {"TPT": 3.0}}
    rows = [failed(one), failed(two, "OSError: a"), two, failed(three), failed(two), again, failed(three, "OSError: b")]
    assert settled_rows(rows) == {(0, 0): failed(one), (0, 1): two, (0, 2): failed(three, "OSError: b")}
