"""Read and check the lines of a run file, and choose the row that counts for each sample."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from tpt_lib.evaluation.run_checks import check_header, check_row
from tpt_lib.evaluation.run_schema import Header, Row

__all__ = ["check_is_file", "checked_lines", "complete_lines", "parse_line", "settled_rows"]


def check_is_file(path: str | os.PathLike[str]) -> Path:
    """Return the path of a run file, which is a regular file or does not exist; otherwise raise a ValueError.

    A folder cannot be a run file. A device or a pipe would be read without end.
    """
    file = Path(path)
    try:
        mode = file.stat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        return file
    if not stat.S_ISREG(mode):
        kind = "a folder" if stat.S_ISDIR(mode) else "a device, a pipe or a socket"
        raise ValueError(f"{str(path)!r} is {kind}; a run file must be a regular file, such as {'run.jsonl'!r}")
    return file


def complete_lines(content: bytes) -> list[bytes]:
    """Return the lines that end in a newline, with it. A killed run may leave part of a line after them."""
    lines = content.splitlines(keepends=True)
    return lines[:-1] if lines and not lines[-1].endswith(b"\n") else lines


def checked_lines(path: str | os.PathLike[str], lines: Sequence[bytes]) -> tuple[Header, list[Row]]:
    """Return the header and the rows of a run file; raise a ValueError that names the first line that is damaged."""
    header = check_header(f"{path}, line 1", parse_line(lines[0]))
    numbered = [(i, line) for i, line in enumerate(lines, 1) if i > 1 and line.strip()]
    return header, [check_row(f"{path}, line {i}", parse_line(line), header) for i, line in numbered]


def settled_rows(rows: Iterable[Row]) -> dict[tuple[int, int], Row]:
    """Return the row that counts for each seed and sample, in the order of their first rows.

    The first row with results counts, else the last one with an error.
    """
    settled: dict[tuple[int, int], Row] = {}
    for row in rows:
        key = row["seed"], row["sample"]
        if "error" in settled.get(key, {"error": ""}):
            settled[key] = row
    return settled


def parse_line(line: bytes) -> Any:
    """Return the value of a line of JSON, or its text if it is none."""
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        return line.decode(errors="replace").strip()
