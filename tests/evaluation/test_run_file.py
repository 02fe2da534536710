"""Run files: written, resumed, locked, and never replaced."""

import json
import os

import pytest
from support.runs import FOUR, refuse_to_write

from tpt_lib.evaluation import run_file
from tpt_lib.evaluation.run_file import RunFile, check_resumable, error_row, read_run, result_row, run_header

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


@pytest.mark.parametrize(
    "content",
    [
        b'{"kind": "run"}',
        json.dumps({"weights": [1, 2]}).encode(),
        json.dumps({**top(), "n": 5}).encode(),
        b"precious",
        b"\x00\xff",
        b"{",  # the start of any JSON; its next byte would tell
    ],
)
def test_one_line_without_its_end_is_only_replaced_if_this_run_began_it(tmp_path, content):
    path = tmp_path / "run.jsonl"
    path.write_bytes(content)
    if content == b"{":
        with RunFile(path, top()) as run:
            assert run.rows == []
        assert read_run(path).header == top()
        return
    first = content[:20].decode(errors="replace")
    with pytest.raises(
        ValueError, match=r"run.jsonl' is not a run file: it starts with b'.*`out`, or move it away"
    ) as caught:
        RunFile(path, top())
    assert repr(content[:20])[2:-1] in str(caught.value), first
    assert path.read_bytes() == content
    assert list(tmp_path.iterdir()) == [path]


def test_an_empty_file_is_started(tmp_path):
    (tmp_path / "run.jsonl").touch()
    with RunFile(tmp_path / "run.jsonl", top()):
        pass
    assert read_run(tmp_path / "run.jsonl").header == top()


def test_a_file_that_must_not_be_replaced_is_found_without_opening_it(tmp_path):
    path = tmp_path / "run.jsonl"
    check_resumable(path, top())
    with RunFile(path, top()):
        pass
    check_resumable(path, top())
    with pytest.raises(ValueError, match="n is 4 there and 5 here"):
        check_resumable(path, top(n=5))
    with pytest.raises(ValueError, match="is a folder"):
        check_resumable(tmp_path, top())


def test_a_run_is_written_by_one_process_at_a_time(tmp_path):
    path = tmp_path / "run.jsonl"
    with RunFile(path, top(), also_lock=tmp_path / "all") as run:
        run.append(rows_of(0))
        for taken in (path, tmp_path / "all"):
            with pytest.raises(BlockingIOError, match=f"process {os.getpid()} on"):
                RunFile(taken, top())
        run.append(rows_of(1))
        assert read_run(path).rows == tuple(rows_of(0, 1))
    assert list(tmp_path.iterdir()) == [path]
    with RunFile(path, top()) as run:
        run.append(rows_of(2, 3))
        with RunFile(path, top()) as finished:  # nothing to write
            assert finished.rows == rows_of(0, 1, 2, 3)


def test_what_was_written_until_the_lock_was_taken_is_kept(tmp_path, monkeypatch):
    path = tmp_path / "run.jsonl"

    class Late(run_file.RunLock):
        def __init__(self, locked):
            monkeypatch.undo()
            with RunFile(path, top()) as other:
                other.append(rows_of(0, 1))
            super().__init__(locked)

    monkeypatch.setattr(run_file, "RunLock", Late)
    with RunFile(path, top()) as run:
        assert (run.rows, run.left) == (rows_of(0, 1), {0: [2, 3]})
        run.append(rows_of(2))
    assert list(read_run(path).rows) == rows_of(0, 1, 2)


def test_what_cannot_be_opened_leaves_no_lock(tmp_path):
    path = tmp_path / "run.jsonl"
    with RunFile(path, top()):
        pass
    path.write_bytes(path.read_bytes() + b"nonsense\n")
    with pytest.raises(ValueError, match="line 2: expected a row"):
        RunFile(path, top())
    assert list(tmp_path.iterdir()) == [path]


def test_a_finished_run_needs_no_writing(tmp_path, monkeypatch):
    path = tmp_path / "run.jsonl"
    with RunFile(path, top()) as run:
        run.append([*rows_of(0, 1, 2), error_row(0, 3, 1, "ImageError: truncated")])
    with RunFile(tmp_path / "part.jsonl", top()) as run:
        run.append(rows_of(0))
    refuse_to_write(monkeypatch)
    with RunFile(path, top()) as run:
        assert (len(run.rows), run.left) == (4, {})
    with RunFile(tmp_path / "part.jsonl", top(), [0]) as run:
        assert run.left == {}
    with pytest.raises(OSError, match="Read-only file system"):
        RunFile(tmp_path / "part.jsonl", top())
    with (
        pytest.warns(UserWarning, match=r"1 sample\(s\) cannot be tried again: .*Read-only file system"),
        RunFile(path, top(), retry_errors=True) as run,
    ):
        assert (len(run.rows), run.left) == (4, {})


FAILED = [error_row(0, 1, 1, "MissingImageError: no file"), error_row(0, 2, None, "ImageError: truncated")]


@pytest.mark.parametrize(("retry_errors", "left"), [(False, [1]), (True, [1, 2])])
def test_errors_that_may_pass_are_left_to_be_tried_again(tmp_path, retry_errors, left):
    path = tmp_path / "run.jsonl"
    with RunFile(path, top(n=3)) as run:
        assert run.left == {0: [0, 1, 2]}
        run.append([*rows_of(0), *FAILED])
    before = path.read_bytes()
    with RunFile(path, top(n=3), retry_errors=retry_errors) as run:
        assert run.left == {0: left}
        assert [row["sample"] for row in run.rows] == [i for i in (0, 1, 2) if i not in left]
        run.append([FAILED[i - 1] for i in left])  # it failed again: nothing new to write
    assert path.read_bytes() == before
    with RunFile(path, top(n=3), retry_errors=retry_errors) as run:
        run.append(rows_of(*left))
    assert path.read_bytes().startswith(before)
    found = read_run(path).rows
    assert [row for row in found if row["sample"] in left] == rows_of(*left)
    assert len(found) == 3
    with RunFile(path, top(n=3)) as run:
        assert run.left == {}


def test_the_samples_of_a_rank_are_its_own(tmp_path):
    with RunFile(tmp_path / "run.jsonl", top(seeds=(5, 0)), range(1, 4, 2)) as run:
        assert run.left == {5: [1, 3], 0: [1, 3]}
        run.append(rows_of(1, seed=5))
    with RunFile(tmp_path / "run.jsonl", top(seeds=(5, 0)), range(1, 4, 2)) as run:
        assert run.left == {5: [3], 0: [1, 3]}
