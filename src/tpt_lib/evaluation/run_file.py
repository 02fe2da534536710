"""Write run files row by row, and resume them.

A run file is only ever appended to. A run that was killed leaves complete lines and possibly part of one, which is
dropped when the run is resumed. ``run_schema`` has the fields, ``run_rows`` makes rows, and ``run_reading`` reads and
merges files; their public names can be imported from here.
"""

from __future__ import annotations

import errno
import os
import warnings
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import IO, Any

from tpt_lib.evaluation.run_checks import differing_settings, short
from tpt_lib.evaluation.run_lines import check_is_file, checked_lines, complete_lines, settled_rows
from tpt_lib.evaluation.run_lock import RunLock
from tpt_lib.evaluation.run_reading import Run, merge_run_files, merge_runs, read_run
from tpt_lib.evaluation.run_rows import error_row, method_result, method_results, result_row, run_header
from tpt_lib.evaluation.run_schema import Header, MethodResult, Row, is_final, json_line, truth_index

__all__ = [
    "Header",
    "MethodResult",
    "Row",
    "Run",
    "RunFile",
    "check_resumable",
    "error_row",
    "merge_run_files",
    "merge_runs",
    "method_result",
    "method_results",
    "read_run",
    "result_row",
    "run_header",
    "truth_index",
]

READ_ONLY = (errno.EROFS, errno.EACCES, errno.EPERM)


class RunFile:
    """An open run file: the rows it has, and ``append`` for more. Use it as a context manager.

    A file that has all of its rows is only read: it is neither locked nor opened for writing.

    Attributes:
        path: the file.
        header: its header.
        rows: the rows that are done, including appended ones. Rows with an error to be tried again are left out.
        left: for each seed the samples that are not done.
        failed: the rows with an error to be tried again, by seed and sample.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        header: Header,
        samples: Iterable[int] | None = None,
        *,
        also_lock: str | os.PathLike[str] | None = None,
        retry_errors: bool = False,
    ) -> None:
        """Start a run file, or resume the one at ``path`` if its settings are the same.

        Args:
            path: the file; its folder is created.
            header: what ``run_header`` returned.
            samples: indices of the samples to be written here (default: all).
            also_lock: another file to lock with this one (default None).
            retry_errors: whether to try all samples with an error again (default False: not those of refused images).

        Raises:
            ValueError: if the file belongs to a run with different settings, which the message names, or is no run
                file. It is not changed.
            BlockingIOError: if another process is writing it.
        """
        self.path = check_is_file(path)
        self.header = header
        self._samples = range(header["n"]) if samples is None else list(samples)
        self._retry_errors = retry_errors
        self._locked = [self.path, *([] if also_lock is None else [Path(also_lock)])]
        self._locks: list[RunLock] = []
        self._file: IO[bytes] | None = None
        self.rows: list[Row] = []
        self.left: dict[int, list[int]] = {}
        self.failed: dict[tuple[int, int], Row] = {}
        self._load()
        if self.left:
            try:
                self._open()
            except BaseException as error:
                self.close()
                if not self._can_be_read_only(error):
                    raise
                warnings.warn(f"{len(self.failed)} sample(s) cannot be tried again: {error}", stacklevel=3)
                self.rows += self.failed.values()
                self.left = {}

    def _can_be_read_only(self, error: BaseException) -> bool:
        """Return whether the disk refused to be written, and the file has a row for each sample."""
        tried = all((seed, i) in self.failed for seed, samples in self.left.items() for i in samples)
        return isinstance(error, OSError) and error.errno in READ_ONLY and tried

    def _load(self) -> int:
        """Read the file, and return the number of bytes in its complete lines."""
        size, self.header, rows = _read(self.path, self.header)
        self.rows, self.failed = [], {}
        for key, row in settled_rows(rows).items():
            if "error" not in row or (is_final(row) and not self._retry_errors):
                self.rows.append(row)
            else:
                self.failed[key] = row
        done = {(row["seed"], row["sample"]) for row in self.rows}
        left = {seed: [i for i in self._samples if (seed, i) not in done] for seed in self.header["seeds"]}
        self.left = {seed: samples for seed, samples in left.items() if samples}
        return size

    def _open(self) -> None:
        """Lock the file and open it after its last complete line."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        for file in self._locked:
            self._locks.append(RunLock(file))
        size = self._load()  # again: another process may have written until now
        self._file = self.path.open("r+b" if size else "wb")
        self._file.truncate(size)
        self._file.seek(0, os.SEEK_END)
        if not size:
            self._write([self.header])

    def append(self, rows: Iterable[Row]) -> None:
        """Append rows, and flush them to the operating system. An error that the file already has is not repeated."""
        new = list(rows)
        self._write([row for row in new if row != self.failed.get((row["seed"], row["sample"]))])
        self.rows += new

    def sync(self) -> None:
        """Wait until the rows are on the disk."""
        assert self._file is not None, "the run is complete"
        os.fsync(self._file.fileno())

    def _write(self, lines: Iterable[Mapping[str, Any]]) -> None:
        assert self._file is not None, "the run is complete"
        self._file.write(b"".join(map(json_line, lines)))
        self._file.flush()

    def __enter__(self) -> RunFile:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file and release its lock."""
        if self._file is not None:
            self._file.close()
        while self._locks:
            self._locks.pop().release()


def check_resumable(path: str | os.PathLike[str], header: Header) -> None:
    """Raise a ValueError if a file exists that a run with this header must not replace."""
    _read(check_is_file(path), header)


def _read(path: Path, header: Header) -> tuple[int, Header, list[Row]]:
    """Return the size of the complete lines of a run's file, its header and its rows."""
    content = path.read_bytes() if path.exists() else b""
    lines = complete_lines(content)
    if not lines:
        if not json_line(header).startswith(content):
            raise ValueError(
                f"{str(path)!r} is not a run file: it starts with {content[:60]!r}. Pass another `out`, or move it away"
            )
        return 0, header, []
    found, rows = checked_lines(path, lines)
    if differing := differing_settings(found, header):
        said = [f"{key} is {short(repr(a))} there and {short(repr(b))} here" for key, (a, b) in differing.items()]
        raise ValueError(
            f"{str(path)!r} belongs to a run with different settings ({'; '.join(said)}). Pass another `out`, or the same "
            "settings to resume"
        )
    return sum(map(len, lines)), found, rows
