"""Run files: a header and a line for each sample, read and checked."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

__all__ = ["Run", "merge_runs", "read_run"]

VERDICTS = {"positive": 0, "negative": 1}


def truth_index(truth: int | str) -> int:
    """The true class by its index; of a Bongard problem 0 is positive, 1 negative."""
    return VERDICTS[truth] if isinstance(truth, str) else truth


HEADER = {"dataset": str, "split": str, "classes": list, "methods": list, "seeds": list, "n": int, "settings": dict}

SAID: dict[str, Any] = {"index": int, "confidence": (int, float), "entropy": (int, float), "top5": list}


@dataclass(frozen=True, eq=False)
class Run:
    """A run: its header, a dict for each (seed, sample), and what there is to say of its file."""

    header: Mapping[str, Any]
    rows: tuple[Mapping[str, Any], ...]
    notes: tuple[str, ...] = ()

    @property
    def label(self) -> str:
        """The dataset, with its split unless that is the test split."""
        dataset, split = self.header["dataset"], self.header["split"]
        return dataset if split == "test" else f"{dataset}/{split}"

    @property
    def model(self) -> str:
        """The model as the settings name it; empty if they do not."""
        model = self.header["settings"].get("model", "")
        return (
            model
            if isinstance(model, str)
            else "/".join(map(str, model.values() if isinstance(model, dict) else [model]))
        )

    @property
    def n_classes(self) -> int:
        return len(self.header["classes"])


def read_run(path: str | os.PathLike[str]) -> Run:
    """A run file, each line checked. A last line that was cut off in writing is left out, and noted."""
    data = Path(path).read_bytes()
    lines = data.split(b"\n")
    notes = []
    if lines[-1] and _parsed(lines[-1]) is None:
        lines.pop()
        notes.append(f"{path}: the last line was cut off and is left out")
    numbered = [(f"{path}, line {i}", line) for i, line in enumerate(lines, 1) if line.strip()]
    if not numbered:
        raise ValueError(
            f'{path}: no header; a run file begins with a line {{"kind": "run", …}}, as evaluate writes it'
        )
    header = checked_header(*numbered[0])
    rows = [checked_row(where, line, header) for where, line in numbered[1:]]
    return Run(header, tuple(_once(rows, str(path))), tuple(notes))


def merge_runs(runs: Iterable[Run]) -> tuple[Run, ...]:
    """Runs with those of the same dataset, split and hash put together: the shards of one run."""
    groups: dict[Any, list[Run]] = {}
    for run in runs:
        groups.setdefault((run.label, run.header["hash"]), []).append(run)
    merged = []
    for group in groups.values():
        rows = _once([row for run in group for row in run.rows], group[0].label)
        merged.append(replace(group[0], rows=tuple(rows), notes=tuple(note for run in group for note in run.notes)))
    return tuple(merged)


def checked_header(where: str, line: bytes) -> dict[str, Any]:
    header = _parsed(line)
    if not isinstance(header, dict) or header.get("kind") != "run":
        raise ValueError(f'{where}: not the header of a run; it should be {{"kind": "run", …}}, but is {_short(line)}')
    for name, kind in HEADER.items():
        if type(header.get(name)) is not kind:
            raise ValueError(f"{where}: the header's {name!r} should be a {kind.__name__}, but is {header.get(name)!r}")
    if not isinstance(header.get("hash"), str):
        raise ValueError(f"{where}: the header has no hash, which tells the shards of one run from another run")
    return header


def checked_row(where: str, line: bytes, header: Mapping[str, Any]) -> dict[str, Any]:
    row = _parsed(line)
    if not isinstance(row, dict) or row.get("kind") != "row":
        raise ValueError(f'{where}: not a row; it should be {{"kind": "row", …}}, but is {_short(line)}')
    n, classes = header["n"], len(header["classes"])
    if row.get("seed") not in header["seeds"]:
        raise ValueError(f"{where}: seed {row.get('seed')!r} is none of the header's {header['seeds']}")
    if type(row.get("sample")) is not int or not 0 <= row["sample"] < n:
        raise ValueError(f"{where}: sample {row.get('sample')!r} should be one of 0 to {n - 1}")
    if "error" in row:
        return row
    truth = row.get("truth")
    if truth not in VERDICTS if isinstance(truth, str) else not _is_class(truth, classes):
        raise ValueError(f"{where}: truth {truth!r} should be a class from 0 to {classes - 1}, or positive or negative")
    for method in header["methods"]:
        said = row.get("methods", {}).get(method)
        if said is None:
            raise ValueError(f"{where}: nothing from method {method!r}, which the header names")
        for name, kind in SAID.items():
            if not isinstance(said.get(name), kind):
                raise ValueError(f"{where}: the {name} of {method!r} is missing or wrong: {said.get(name)!r}")
        if not _is_class(said["index"], max(classes, 2)):
            raise ValueError(f"{where}: {method!r} said class {said['index']}, but there are {classes}")
        if not 0 <= said["confidence"] <= 1 + 1e-4:
            raise ValueError(f"{where}: the confidence of {method!r} should lie in 0 to 1, but is {said['confidence']}")
        if classes >= 5 and len(said["top5"]) != 5:
            raise ValueError(f"{where}: the top5 of {method!r} should be 5 classes, but are {said['top5']}")
    return row


def _is_class(value: Any, classes: int) -> bool:
    return type(value) is int and 0 <= value < classes


def _once(rows: list[dict[str, Any]] | list[Mapping[str, Any]], where: str) -> list[Mapping[str, Any]]:
    """The rows by seed and sample, one of each. Two that say the same, but for their time, are one."""
    known: dict[tuple[int, int], Mapping[str, Any]] = {}
    for row in rows:
        key = row["seed"], row["sample"]
        other = known.setdefault(key, row)
        if other is not row and _untimed(other) != _untimed(row):
            raise ValueError(f"{where}: two rows of seed {key[0]}, sample {key[1]} differ; keep one of the files")
    return [known[key] for key in sorted(known)]


def _untimed(row: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if name != "seconds"}


def _parsed(line: bytes) -> Any:
    try:
        return json.loads(line)
    except ValueError:
        return None


def _short(line: bytes) -> str:
    text = line.decode(errors="replace")
    return text if len(text) <= 60 else f"{text[:60]}…"
