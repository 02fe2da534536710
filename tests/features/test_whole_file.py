import errno
import math
import os
import socket

import pytest
import torch
from support.systems import needs_fork

from tpt_lib.features.whole_file import (
    DTYPES,
    DamagedFileError,
    check_tensors,
    join_texts,
    map_tensors,
    remove_parts,
    text_at,
    write_tensors,
    write_whole,
)

TENSORS = {"a": torch.arange(6.0).view(2, 3), "b": torch.arange(4, dtype=torch.int32), "c": torch.ones(3).half()}


@pytest.fixture
def file(tmp_path):
    write_tensors(tmp_path / "some.safetensors", TENSORS, {"note": "é"})
    return tmp_path / "some.safetensors"


def test_what_is_written_is_read(file):
    tensors, notes = map_tensors(file)
    assert notes["note"] == "é"
    assert tensors.keys() == TENSORS.keys()
    for name, tensor in TENSORS.items():
        assert tensors[name].dtype == tensor.dtype
        assert tensors[name].equal(tensor)
    assert check_tensors(file) == notes


def test_a_file_that_cannot_be_opened_is_the_error_that_is_raised(tmp_path, monkeypatch):
    """And not that there is nothing to clean up."""

    def full(*_, **__):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("pathlib.Path.open", full)
    with pytest.raises(OSError, match="No space left"):
        write_whole(tmp_path / "some.bin", b"1")


def test_only_tensors_that_are_named_are_mapped(file):
    tensors, notes = map_tensors(file, "a")
    assert list(tensors) == ["a"]
    assert tensors["a"].equal(TENSORS["a"])
    assert notes == map_tensors(file)[1]
    with pytest.raises(DamagedFileError, match=r"is damaged: .*missing"):
        map_tensors(file, "missing")


def test_writing_to_a_mapped_tensor_does_not_reach_the_file(file):
    map_tensors(file)[0]["a"].zero_()
    assert map_tensors(file)[0]["a"].equal(TENSORS["a"])
    check_tensors(file)


def test_every_changed_byte_of_the_tensors_is_found(file):
    whole = file.read_bytes()
    size = sum(tensor.nbytes for tensor in TENSORS.values())
    for at in range(len(whole) - size, len(whole)):
        changed = bytearray(whole)
        changed[at] ^= 1
        file.write_bytes(changed)
        with pytest.raises(DamagedFileError, match=r"its checksum is \w{8}, but was \w{8}"):
            check_tensors(file)


@pytest.mark.parametrize("change", [1, 16, 128])
def test_every_changed_byte_of_the_header_is_found(file, change):
    whole = file.read_bytes()
    content = whole[: 8 + int.from_bytes(whole[:8], "little")].rstrip()  # spaces fill the rest
    for at in range(len(content)):
        file.write_bytes(whole[:at] + bytes([whole[at] ^ change]) + whole[at + 1 :])
        with pytest.raises(DamagedFileError, match=r"some\.safetensors"):
            check_tensors(file)


def test_tensors_are_those_of_safetensors(file):
    from safetensors.torch import load_file

    want, (found, _) = load_file(file), map_tensors(file)
    assert found.keys() == want.keys()
    assert all(found[name].equal(want[name]) for name in want)


def test_a_tensor_without_numbers(tmp_path):
    write_tensors(tmp_path / "empty.safetensors", {"none": torch.empty(0, 3).half()}, {})
    found = map_tensors(tmp_path / "empty.safetensors")[0]["none"]
    assert (found.shape, found.dtype) == ((0, 3), torch.float16)


@pytest.mark.parametrize("dtype", DTYPES.values())
@pytest.mark.parametrize("shape", [(), (2, 3)])
def test_a_tensor_of_every_type(tmp_path, dtype, shape):
    tensor = torch.arange(math.prod(shape)).reshape(shape).to(dtype)
    write_tensors(tmp_path / "one.safetensors", {"one": tensor}, {})
    found = map_tensors(tmp_path / "one.safetensors")[0]["one"]
    assert found.dtype == dtype
    assert found.equal(tensor)
    check_tensors(tmp_path / "one.safetensors")


def test_a_changed_note_is_found(file):
    file.write_bytes(file.read_bytes().replace("é".encode(), "è".encode()))
    with pytest.raises(DamagedFileError, match="checksum"):
        check_tensors(file)


@pytest.mark.parametrize("kept", [0, 5, 60, -1])
def test_a_file_that_is_cut_short_is_refused(file, kept):
    file.write_bytes(file.read_bytes()[:kept])
    with pytest.raises(DamagedFileError, match=r"some\.safetensors"):
        map_tensors(file)


def test_a_file_of_another_program_is_refused(tmp_path):
    from safetensors.torch import save_file

    save_file({"a": torch.ones(2)}, tmp_path / "other.safetensors")
    with pytest.raises(DamagedFileError, match="no checksum"):
        map_tensors(tmp_path / "other.safetensors")


def test_a_failed_write_leaves_the_old_file_and_no_other(file, monkeypatch):
    before = file.read_bytes()

    def full(_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        write_whole(file, b"new")
    assert file.read_bytes() == before
    assert list(file.parent.iterdir()) == [file]


def test_the_disk_has_all_of_a_file_before_it_gets_its_name(tmp_path, monkeypatch):
    there = []
    monkeypatch.setattr(os, "fsync", lambda _: there.extend((p.name, p.read_bytes()) for p in tmp_path.iterdir()))
    write_whole(tmp_path / "some.bin", b"new")
    assert there == [(f"some.bin.part-{socket.gethostname()}-{os.getpid()}", b"new")]
    assert [(p.name, p.read_bytes()) for p in tmp_path.iterdir()] == [("some.bin", b"new")]


def test_a_part_that_another_process_removes_is_no_error(tmp_path, monkeypatch):
    part = tmp_path / f"x.part-{socket.gethostname()}-1"
    part.touch()
    monkeypatch.setattr("tpt_lib.features.whole_file._is_running", lambda _: part.unlink())
    remove_parts(tmp_path)
    assert not part.exists()


@needs_fork
def test_parts_of_killed_processes_are_removed_and_those_of_others_are_not(file, tmp_path):
    child = os.fork()
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)
    host = socket.gethostname()
    names = [f"x.part-{host}-{child}", f"x.part-{host}-{os.getpid()}", "x.part-elsewhere-1", f"x.part-{host}-notes"]
    for name in names:
        (tmp_path / name).touch()
    remove_parts(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {file.name, *names[1:]}


def test_texts_come_back_one_by_one():
    texts = ["a/1.png", "", "ü/2.png", "x", "bad\udcff.png", ""]
    joined, ends = join_texts(texts)
    assert [text_at(joined, ends, i) for i in range(6)] == texts
    assert text_at(*join_texts([""]), 0) == ""
    assert join_texts([])[1].dtype == torch.int64
