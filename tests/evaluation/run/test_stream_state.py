"""The state file of a run: exact, atomic, and refused if it is damaged or of another run."""

import os
from dataclasses import dataclass

import pytest
import torch
from safetensors.torch import save_file

from tpt_lib.evaluation.run import stream_state
from tpt_lib.evaluation.run.stream_state import SavedStates, StateFile
from tpt_lib.features.whole_file import write_tensors


@dataclass(frozen=True)
class Inner:
    counts: torch.Tensor
    masks: torch.Tensor | None = None


@dataclass(frozen=True)
class Outer:
    first: Inner
    weights: torch.Tensor


def states(value=0.0):
    one = Outer(Inner(torch.full((2, 3), value).T, torch.zeros(2, dtype=torch.bool)), torch.tensor(value))
    return {"one/two": one, "other": Inner(torch.tensor([value, torch.nan, torch.inf]).half())}


def state_file(folder, run_hash="abc", initial=None):
    return StateFile(folder / "run.jsonl", run_hash, initial or states())


@pytest.fixture
def written(tmp_path):
    """A state file, and its bytes."""
    file = state_file(tmp_path)
    file.write(SavedStates(3, 17, states(0.1)))
    return file


def test_what_was_written_is_read_exactly(written, tmp_path):
    saved = state_file(tmp_path).read()
    assert saved[:2] == (3, 17)
    assert list(saved.states) == ["one/two", "other"]
    want, got = states(0.1), saved.states
    torch.testing.assert_close(got["one/two"].first.counts, want["one/two"].first.counts, rtol=0, atol=0)
    torch.testing.assert_close(got["one/two"].weights, want["one/two"].weights, rtol=0, atol=0)
    torch.testing.assert_close(got["other"].counts, want["other"].counts, rtol=0, atol=0, equal_nan=True)
    assert got["other"].masks is None
    assert got["one/two"].first.masks.dtype == torch.bool
    assert [file.name for file in tmp_path.iterdir()] == ["run.jsonl.state"]


def test_there_may_be_none(tmp_path):
    assert state_file(tmp_path).read() is None


def test_one_tensor_may_be_in_two_places(tmp_path):
    shared = torch.ones(3)
    both = {"one": Inner(shared), "two": Inner(shared)}
    file = state_file(tmp_path, initial=both)
    file.write(SavedStates(0, 1, both))
    assert file.read().states["two"].counts.tolist() == [1, 1, 1]


def refused(file, why):
    before = file.path.read_bytes()
    remedy = "Restore it from a copy; or move it away, so that evaluate recomputes the states from the first image"
    with pytest.raises(ValueError, match=rf"run\.jsonl\.state' {why}.*{remedy}"):
        file.read()
    assert file.path.read_bytes() == before


def test_a_file_that_is_damaged_anywhere_is_refused(written, tmp_path):
    whole = written.path.read_bytes()
    for at in range(0, len(whole), 7):
        written.path.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        refused(written, "is damaged")
    for size in (0, 7, len(whole) // 2, len(whole) - 1):
        written.path.write_bytes(whole[:size])
        refused(written, "is damaged")
    written.path.write_bytes(whole)
    assert written.read()[:2] == (3, 17)


def test_another_position_in_the_same_file_is_noticed(written):
    content = written.path.read_bytes()
    assert content.count(b'"17"') == 1
    written.path.write_bytes(content.replace(b'"17"', b'"16"'))
    refused(written, "is damaged: its checksum is")


def test_a_foreign_file_is_refused(written, tmp_path):
    refused(state_file(tmp_path, "abd"), "has the states of another run")
    more = {**states(), "third": Inner(torch.zeros(1))}
    refused(state_file(tmp_path, initial=more), "has states of other shapes")
    wider = {**states(), "other": Inner(torch.zeros(4).half())}
    refused(state_file(tmp_path, initial=wider), "has states of other shapes")
    write_tensors(written.path, {"a": torch.ones(2)}, {"format": "a shard"})
    refused(written, "was not written by evaluate")
    save_file({"a": torch.ones(2)}, written.path)
    refused(written, "is damaged, or was not written by tpt_lib")
    written.path.unlink()
    written.path.mkdir()
    with pytest.raises(ValueError, match=r"run\.jsonl\.state' is a folder"):
        written.read()


def test_a_write_that_fails_leaves_the_old_file(written, monkeypatch):
    before = written.path.read_bytes()

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        written.write(SavedStates(3, 18, states(0.2)))
    assert written.path.read_bytes() == before
    monkeypatch.undo()


def test_it_is_removed_with_what_kills_left_of_writes(written):
    others = [written.path.with_name(name) for name in ("run.jsonl.states", "run.jsonl.state2", "run.jsonl")]
    for path in (*others, written.path.with_name("run.jsonl.state.part-host-123")):
        path.touch()
    written.remove()
    assert sorted(written.path.parent.iterdir()) == sorted(others)
    written.remove()


def test_it_is_written_now_and_then(tmp_path, monkeypatch):
    clock = [100.0]
    monkeypatch.setattr(stream_state.time, "monotonic", lambda: clock[0])
    file = state_file(tmp_path)
    assert not file.is_due
    clock[0] += stream_state.SECONDS
    assert file.is_due
    replace = os.replace

    def slow(*args):
        clock[0] += 3.0
        return replace(*args)

    monkeypatch.setattr("pathlib.os.replace", slow)
    file.write(SavedStates(0, 1, states()))
    assert clock[0] == 113.0
    for now, due in ((113.0 + stream_state.SECONDS, False), (113.0 + 3 * stream_state.SHARE, True)):
        clock[0] = now
        assert file.is_due == due
