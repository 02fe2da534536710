"""Read run files, and merge the parts of one run."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tpt_lib.evaluation.run_checks import differing_settings
from tpt_lib.evaluation.run_lines import check_is_file, checked_lines, complete_lines, parse_line, settled_rows
from tpt_lib.evaluation.run_schema import Header, Row, json_line

__all__ = ["Run", "merge_run_files", "merge_runs", "read_run"]


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
    lines = check_is_file(path).read_bytes().split(b"\n")
    notes = []
    if lines[-1] and isinstance(parse_line(lines[-1]), str):
        lines.pop()
        notes.append(f"{path}: the last line was incomplete and is dropped")
    if not any(line.strip() for line in lines):
        raise ValueError(f'{path}: no header; a run file starts with a line {{"kind": "run", …}}, written by evaluate')
    header, rows = checked_lines(path, lines)
    return Run(header, tuple(_unique(rows, str(path))), tuple(notes))


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
        paths: files of one run. If several have a row of the same sample, the first one with results is kept.
        out: destination; written atomically.

    Raises:
        ValueError: if a file is damaged, or the files belong to different runs.
    """
    parts = []
    for path in paths:
        lines = complete_lines(check_is_file(path).read_bytes())
        if not lines:
            raise ValueError(f"{path}: no header. Run the rank that writes it again")
        parts.append((path, *checked_lines(path, lines)))
    first, header, _ = parts[0]
    for path, other, _ in parts[1:]:
        if other["hash"] != header["hash"]:
            names = ", ".join(differing_settings(header, other)) or "hash"
            raise ValueError(f"merge_run_files: {first} and {path} belong to different runs, which differ in {names}")
    rows = settled_rows(row for _, _, own in parts for row in own)
    ordered = sorted(rows.values(), key=lambda row: (header["seeds"].index(row["seed"]), row["sample"]))
    merged, destination = b"".join(map(json_line, [header, *ordered])), Path(out)
    if destination.exists() and destination.read_bytes() == merged:
        return  # so that a finished run can be on a read-only disk
    temporary = Path(f"{out}.part")
    temporary.write_bytes(merged)
    temporary.replace(destination)


def _unique(rows: Sequence[Row], where: str) -> list[Row]:
    """Return the row that counts for each seed and sample, in order. Two with results may differ only in their seconds."""
    settled = settled_rows(rows)
    for row in rows:
        key = row["seed"], row["sample"]
        if "error" not in row and {**settled[key], "seconds": None} != {**row, "seconds": None}:
            raise ValueError(f"{where}: two rows of seed {key[0]}, sample {key[1]} differ; keep one of the files")
    return [settled[key] for key in sorted(settled)]
