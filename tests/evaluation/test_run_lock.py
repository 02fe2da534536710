"""The lock of a run file: who holds it is said, and every death of that process releases it."""

import errno
import os
import signal
import socket
import time
from contextlib import contextmanager
from types import SimpleNamespace

import pytest
from support.systems import needs_fcntl, needs_fork

from tpt_lib.evaluation import run_lock
from tpt_lib.evaluation.run_lock import RunLock


@contextmanager
def holder(path, then=lambda: time.sleep(60)):
    """Another process that holds the lock; it is killed at the end."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        lock = RunLock(path)
        os.write(writer, b"locked")
        then()
        os._exit(lock is None)
    assert os.read(reader, 6) == b"locked"
    try:
        yield child
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        os.close(reader)
        os.close(writer)


@needs_fork
def test_a_second_process_is_told_who_holds_it_and_a_kill_releases_it(tmp_path):
    path = tmp_path / "run.jsonl"
    message = (
        r"run\.jsonl' is being written by process {} on {}, since 20.*\. Wait for it, stop it, or pass another `out`"
    )
    with (
        holder(path) as child,
        pytest.raises(BlockingIOError, match=message.format(child, socket.gethostname())),
    ):
        RunLock(path)
    assert (tmp_path / "run.jsonl.lock").exists()
    lock = RunLock(path)
    with pytest.raises(BlockingIOError, match=f"process {os.getpid()} on"):
        RunLock(path)
    lock.release()
    assert list(tmp_path.iterdir()) == []


def test_a_lock_that_is_dropped_is_released(tmp_path):
    RunLock(tmp_path / "run.jsonl")
    RunLock(tmp_path / "run.jsonl").release()


@needs_fork
def test_workers_that_outlive_their_parent_do_not_keep_it(tmp_path):
    path, pid = tmp_path / "run.jsonl", tmp_path / "pid"

    def fork():
        child = os.fork()
        if child == 0:
            run_lock.close_locks(0)
            time.sleep(60)
            os._exit(0)
        pid.write_text(f"{child}\n")
        time.sleep(60)

    with holder(path, fork):
        while not pid.exists() or not pid.read_text().endswith("\n"):
            time.sleep(0.001)
        with pytest.raises(BlockingIOError):
            RunLock(path)
    try:
        os.kill(int(pid.read_text()), 0)  # as a worker that makes views, which notices the death of its parent late
        RunLock(path).release()
    finally:
        os.kill(int(pid.read_text()), signal.SIGKILL)


@needs_fcntl
def test_a_lock_that_its_holder_removes_while_it_is_opened_is_opened_again(tmp_path, monkeypatch):
    removed = []
    real = run_lock.fcntl.flock

    def flock(descriptor, how):
        if not removed:
            removed.append((tmp_path / "run.jsonl.lock").unlink())
        real(descriptor, how)

    monkeypatch.setattr(run_lock.fcntl, "flock", flock)
    lock = RunLock(tmp_path / "run.jsonl")
    assert os.path.samestat(os.fstat(lock.descriptor), (tmp_path / "run.jsonl.lock").stat())


def test_a_link_to_a_run_file_has_the_same_lock(tmp_path):
    (tmp_path / "link").symlink_to(tmp_path / "run.jsonl")
    lock = RunLock(tmp_path / "run.jsonl")
    with pytest.raises(BlockingIOError):
        RunLock(tmp_path / "link")
    lock.release()


def test_a_file_that_is_no_lock_is_left_alone(tmp_path):
    (tmp_path / "run.jsonl.lock").write_text("mine")
    with pytest.raises(ValueError, match=r"run\.jsonl\.lock' is not a lock of a run file\. Move it away, or pass"):
        RunLock(tmp_path / "run.jsonl")
    assert (tmp_path / "run.jsonl.lock").read_text() == "mine"


@needs_fcntl
def test_where_there_are_no_locks_that_is_said(tmp_path, monkeypatch):
    def flock(*_):
        raise OSError(errno.ENOLCK, "No locks available")

    with monkeypatch.context() as patch:
        patch.setattr(run_lock.fcntl, "flock", flock)
        with pytest.warns(UserWarning, match=r"run\.jsonl' cannot be locked: .*No locks available.*a second run"):
            RunLock(tmp_path / "run.jsonl").release()
    assert list(tmp_path.iterdir()) == []


@needs_fcntl
def test_windows_locks_a_byte_after_the_name_of_the_holder(tmp_path, monkeypatch):
    """As msvcrt does, here on top of flock: it fails with EACCES, and locks from the place in the file on."""
    places, flock, exclusive = [], run_lock.fcntl.flock, run_lock.fcntl.LOCK_EX | run_lock.fcntl.LOCK_NB

    def locking(descriptor, mode, count):
        places.append((os.lseek(descriptor, 0, os.SEEK_CUR), mode, count))
        try:
            flock(descriptor, exclusive)
        except BlockingIOError:
            raise PermissionError(errno.EACCES, "Permission denied") from None

    monkeypatch.setattr(run_lock, "fcntl", None)
    monkeypatch.setattr(run_lock, "msvcrt", SimpleNamespace(locking=locking, LK_NBLCK=2), raising=False)
    lock = RunLock(tmp_path / "run.jsonl")
    assert places == [(2**30, 2, 1)]
    assert (tmp_path / "run.jsonl.lock").stat().st_size < 200
    with pytest.raises(BlockingIOError, match=rf"is being written by process {os.getpid()} on"):
        RunLock(tmp_path / "run.jsonl")
    with monkeypatch.context() as patch:
        patch.setattr(type(lock.path), "unlink", refuse)  # the next process has opened it
        lock.release()
    RunLock(tmp_path / "run.jsonl").release()
    assert list(tmp_path.iterdir()) == []


def refuse(path, missing_ok):
    raise PermissionError(errno.EACCES, "The process cannot access the file")
