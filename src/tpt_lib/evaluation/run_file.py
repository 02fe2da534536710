"""Run files: write them row by row, resume them, read and merge them.

A run file is only ever appended to. A run that was killed leaves complete lines and possibly part of one, which is
dropped when the run is resumed. ``run_schema`` has the fields; all of its public names can be imported from here.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any

from tpt_lib.evaluation.run_checks import check_header, check_row, differing_settings, short
from tpt_lib.evaluation.run_schema import (
    Header,
    MethodResult,
    Row,
    error_row,
    json_line,
    method_result,
    result_row,
    run_header,
    truth_index,
)

__all__ = [
    "Header",
    "MethodResult",
    "Row",
    "Run",
    "RunFile",
    "error_row",
    "merge_run_files",
    "merge_runs",
    "method_result",
    "read_run",
    "result_row",
    "run_header",
    "truth_index",
]


@dataclass(frozen=True, eq=False)
class Run:
    """A run that was read: its header, one row per (seed, sample), and notes about its file."""

    header: Header
    rows: tuple[Row, ...]
    notes: tuple[str, ...] = ()

    @property
    def label(self) -> str:
        """The dataset, with its split unless that is the test split."""
        dataset, split = self.header["dataset"], self.header["split"]
        return dataset if split == "test" else f"{dataset}/{split}"

    @property
    def model(self) -> str:
        """The model as the settings name it, or an empty string."""
        model = self.header["settings"].get("model", "")
        parts = model.values() if isinstance(model, dict) else [model]
        return "/".join(map(str, parts))

    @property
    def n_classes(self) -> int:
        """The number of classes."""
        return len(self.header["classes"])


class RunFile:
    """An open run file: the rows it has, and ``append`` for more. Use it as a context manager.

    Attributes:
        path: the file.
        header: its header.
        rows: the rows that it has, including appended ones.
    """

    def __init__(self, path: str | os.PathLike[str], header: Header) -> None:
        """Start a run file, or resume the one at ``path`` if its settings are the same.

        Args:
            path: the file; its folder is created.
            header: what ``run_header`` returned.

        Raises:
            ValueError: if the file belongs to a run with different settings, which the message names. The file is not
                changed.
        """
        self.path = Path(path)
        self.header = header
        self.rows: list[Row] = []
        if self.path.exists() and (lines := _complete_lines(self.path)):
            self.header, self.rows = self._resume(lines)
            self._file: IO[bytes] = self.path.open("r+b")
            self._file.truncate(sum(map(len, lines)))
            self._file.seek(0, os.SEEK_END)
        else:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._file = self.path.open("wb")
            self._write([self.header])

    def _resume(self, lines: list[bytes]) -> tuple[Header, list[Row]]:
        found = check_header(f"{self.path}, line 1", _parsed(lines[0]))
        if differing := differing_settings(found, self.header):
            said = [f"{key} is {short(repr(a))} there and {short(repr(b))} here" for key, (a, b) in differing.items()]
            raise ValueError(
                f"{str(self.path)!r} belongs to a run with different settings ({'; '.join(said)}). Pass another `out`, or "
                "the same settings to resume"
            )
        return found, _checked_rows(str(self.path), lines, found)

    def append(self, rows: Iterable[Row]) -> None:
        """Append rows, and flush them to the operating system."""
        new = list(rows)
        self._write(new)
        self.rows += new

    def _write(self, lines: Iterable[Mapping[str, Any]]) -> None:
        self._file.write(b"".join(map(json_line, lines)))
        self._file.flush()

    def __enter__(self) -> RunFile:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()


def read_run(path: str | os.PathLike[str]) -> Run:
    """Read a run file and check every line.

    Args:
        path: a file written by ``evaluate`` or ``evaluate_bongard``.

    Returns:
        The run. An incomplete last line, as a killed run leaves it, is dropped and noted.

    Raises:
        ValueError: if a line is not what it should be; the message says which and why.

    >>> data = tpt_lib.EvalSet("noise", [(torch.rand(3, 40, 60), 0)], ("cat", "dog"))
    >>> report = tpt_lib.evaluate(model, data, "zero_shot", out=f"{folder}/run.jsonl", n_views=1)
    >>> run = tpt_lib.evaluation.read_run(f"{folder}/run.jsonl")
    >>> run.header["dataset"], len(run.rows)
    ('noise', 1)
    """
    lines = Path(path).read_bytes().split(b"\n")
    notes = []
    if lines[-1] and isinstance(_parsed(lines[-1]), str):
        lines.pop()
        notes.append(f"{path}: the last line was incomplete and is dropped")
    if not any(line.strip() for line in lines):
        raise ValueError(f'{path}: no header; a run file starts with a line {{"kind": "run", …}}, written by evaluate')
    header = check_header(f"{path}, line 1", _parsed(lines[0]))
    return Run(header, tuple(_unique(_checked_rows(str(path), lines, header), str(path))), tuple(notes))


def merge_runs(runs: Iterable[Run]) -> tuple[Run, ...]:
    """Return the runs with the parts of one run, which share dataset, split and hash, merged into one.

    Args:
        runs: what ``read_run`` returned for each file.

    Returns:
        One run for each dataset, split and hash.

    >>> data = tpt_lib.EvalSet("noise", [(torch.rand(3, 40, 60), 0)], ("cat", "dog"))
    >>> report = tpt_lib.evaluate(model, data, "zero_shot", out=f"{folder}/run.jsonl", n_views=1)
    >>> run = tpt_lib.evaluation.read_run(f"{folder}/run.jsonl")
    >>> [one.label for one in tpt_lib.evaluation.merge_runs([run, run])]
    ['noise']
    """
    groups: dict[Any, list[Run]] = {}
    for run in runs:
        groups.setdefault((run.label, run.header["hash"]), []).append(run)
    merged = []
    for group in groups.values():
        rows = _unique([row for run in group for row in run.rows], group[0].label)
        merged.append(replace(group[0], rows=tuple(rows), notes=tuple(note for run in group for note in run.notes)))
    return tuple(merged)


def merge_run_files(paths: Iterable[str | os.PathLike[str]], out: str | os.PathLike[str]) -> None:
    """Merge the files of several ranks into one, in the order of a single process.

    Args:
        paths: files of one run. If several have the same row, the last one is kept.
        out: destination; written atomically.

    Raises:
        ValueError: if the files belong to different runs.
    """
    parts = [[json.loads(line) for line in _complete_lines(Path(path))] for path in paths]
    header = parts[0][0]
    for first, *_ in parts:
        if first["hash"] != header["hash"]:
            raise ValueError(f"merge_run_files: the files belong to different runs: {short(header)} and {short(first)}")
    rows = {(header["seeds"].index(row["seed"]), row["sample"]): row for part in parts for row in part[1:]}
    temporary = Path(f"{out}.part")
    temporary.write_bytes(b"".join(map(json_line, [header, *(row for _, row in sorted(rows.items()))])))
    temporary.replace(out)


def _checked_rows(path: str, lines: Sequence[bytes], header: Header) -> list[Row]:
    numbered = [(i, line) for i, line in enumerate(lines, 1) if i > 1 and line.strip()]
    return [check_row(f"{path}, line {i}", _parsed(line), header) for i, line in numbered]


def _unique(rows: Sequence[Row], where: str) -> list[Row]:
    """Return the rows by seed and sample without duplicates. Two rows may differ only in their seconds."""
    known: dict[tuple[int, int], Row] = {}
    for row in rows:
        key = row["seed"], row["sample"]
        other = known.setdefault(key, row)
        if other is not row and {**other, "seconds": None} != {**row, "seconds": None}:
            raise ValueError(f"{where}: two rows of seed {key[0]}, sample {key[1]} differ; keep one of the files")
    return [known[key] for key in sorted(known)]


def _complete_lines(path: Path) -> list[bytes]:
    lines = path.read_bytes().splitlines(keepends=True)
    return lines[:-1] if lines and not lines[-1].endswith(b"\n") else lines


def _parsed(line: bytes) -> Any:
    """Return the value of a line of JSON, or its text if it is none."""
    try:
        return json.loads(line)
    except ValueError:
        return line.decode(errors="replace")
