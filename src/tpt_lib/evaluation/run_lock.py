"""Lock a run file, so that only one process writes it; the error of a second one names the first.

The lock is ``flock`` on a file next to the run file, or ``msvcrt.locking`` on Windows; the file names its holder. The system
releases it when the process ends, however that happens; a clean end also removes the file.
"""

from __future__ import annotations

import json
import os
import socket
import time
import warnings
import weakref
from contextlib import suppress
from pathlib import Path

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]
    import msvcrt

__all__ = ["RunLock", "close_locks"]

FAR = 2**30  # offset of the locked byte: Windows does not let others read locked bytes, and the file names its holder
_held: weakref.WeakSet[RunLock] = weakref.WeakSet()  # locks of this process, which its workers must not keep


class RunLock:
    """The lock of a run file, held from here until ``release`` or the end of the process.

    Where locks do not exist (some network file systems), it warns and holds nothing.
    """

    descriptor: int | None = None

    def __init__(self, path: Path) -> None:
        """Take the lock of the run file at ``path``.

        Raises:
            BlockingIOError: if another process holds it; the message names its host and process.
            OSError: if the folder cannot be written.
        """
        file = path.resolve()
        self.path = file.with_name(f"{file.name}.lock")
        self.descriptor = _locked(path, self.path)
        if self.descriptor is not None:
            holder = {"host": socket.gethostname(), "pid": os.getpid(), "since": time.strftime("%Y-%m-%d %H:%M:%S")}
            os.ftruncate(self.descriptor, 0)
            os.write(self.descriptor, json.dumps(holder).encode())
            _held.add(self)

    def release(self) -> None:
        """Release the lock and remove its file."""
        if self.descriptor is None:
            return
        if fcntl is None:  # Windows does not remove a file that is open, here or in the process that locks it next
            self.close()
            with suppress(PermissionError):
                self.path.unlink(missing_ok=True)
        else:
            self.path.unlink(missing_ok=True)
            self.close()

    def close(self) -> None:
        """Close the file, which releases the lock unless this is a forked child that shares it."""
        if self.descriptor is not None:
            os.close(self.descriptor)
            self.descriptor = None

    __del__ = close


def _locked(path: Path, lock: Path) -> int | None:
    """Return the descriptor of the locked file, or None where locks do not exist."""
    while True:
        descriptor = os.open(lock, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            _lock(descriptor)
            if _is_at(descriptor, lock):  # else its last holder removed it after it was opened here
                return _checked(descriptor, lock)
        except BlockingIOError:
            os.close(descriptor)
            raise BlockingIOError(
                f"{str(path)!r} is being written by {_holder(lock)}. Wait for it, stop it, or pass another `out`"
            ) from None
        except OSError as error:
            os.close(descriptor)
            lock.unlink(missing_ok=True)
            _warn_unlocked(path, str(error))
            return None
        os.close(descriptor)


def _lock(descriptor: int) -> None:
    """Lock an open file, or raise a BlockingIOError if another process holds it."""
    if fcntl is not None:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return
    os.lseek(descriptor, FAR, os.SEEK_SET)
    try:
        msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)  # type: ignore[attr-defined, unused-ignore]
    except PermissionError as error:
        raise BlockingIOError(error.errno, error.strerror) from error
    finally:
        os.lseek(descriptor, 0, os.SEEK_SET)


def _checked(descriptor: int, lock: Path) -> int:
    """Return the descriptor if the file is empty, or names a holder, as a killed process leaves it."""
    if os.read(descriptor, 9) not in (b"", b'{"host": '):
        os.close(descriptor)
        raise ValueError(f"{str(lock)!r} is not a lock of a run file. Move it away, or pass another `out`")
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor


def _warn_unlocked(path: Path, why: str) -> None:
    warnings.warn(f"{str(path)!r} cannot be locked: {why}. Do not start a second run on it", stacklevel=5)


def _is_at(descriptor: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False


def _holder(lock: Path) -> str:
    try:
        holder = json.loads(lock.read_bytes())
        return f"process {holder['pid']} on {holder['host']}, since {holder['since']}"
    except (OSError, ValueError, KeyError, TypeError):  # it has just been released, or taken
        return "another process"


def close_locks(_worker: int) -> None:
    """Close the locks that a forked worker shares with its parent, so that it does not keep them when the parent dies."""
    for lock in list(_held):
        lock.close()
