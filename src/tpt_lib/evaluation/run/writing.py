"""A run on disk: a line of settings, then a line for each sample, written as it is known and never rewritten.

What a killed run left is a whole number of lines and perhaps part of one; the part is dropped when the run goes on.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
from collections.abc import Iterable, Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import IO, Any

from tpt_lib.models.identity import _digest
from tpt_lib.prompts.class_prompts import ClassPrompts

Row = dict[str, Any]

PACKAGES = ("tpt_lib", "torch", "torchvision", "open_clip_torch", "pillow", "numpy")


class RunFile:
    """An open run file: what it has already, and where rows are added."""

    def __init__(self, path: str | os.PathLike[str], header: Row) -> None:
        """Starts a file, or goes on with one of the same settings; another's is left alone.

        Raises:
            ValueError: if the file is of another run; the message names what differs.
        """
        self.path = Path(path)
        self.header = {"kind": "run", **header, "versions": _versions()}
        self.header["hash"] = hashlib.sha256(_line(_settings(self.header))).hexdigest()[:16]
        self.rows: list[Row] = []
        if self.path.exists() and (lines := _whole_lines(self.path)):
            self.header, self.rows = self._resumed(lines)
            self._file: IO[bytes] = self.path.open("r+b")
            self._file.truncate(sum(map(len, lines)))
            self._file.seek(0, os.SEEK_END)
        else:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._file = self.path.open("wb")
            self._write([self.header])

    def _resumed(self, lines: list[bytes]) -> tuple[Row, list[Row]]:
        found, *rows = map(json.loads, lines)
        differ = _differences("", _settings(found), _settings(self.header))
        if differ:
            raise ValueError(
                f"evaluate: {str(self.path)!r} is of another run: {'; '.join(differ)}. Give another file as out, or the "
                "same settings to go on with it"
            )
        return found, rows

    def add(self, rows: Iterable[Row]) -> None:
        """Appends rows, and returns when the operating system has them."""
        new = [{"kind": "row", **row} for row in rows]
        self._write(new)
        self.rows += new

    def _write(self, lines: Iterable[Row]) -> None:
        self._file.write(b"".join(map(_line, lines)))
        self._file.flush()

    def __enter__(self) -> RunFile:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()


def describe(method: Any, prompts: Any) -> str:
    """A method by name, with its keywords, and the prompts it was given."""
    keywords: dict[str, Any] = {}
    while isinstance(method, functools.partial):
        keywords = {**method.keywords, **keywords}
        method = method.func
    said = ", ".join(f"{key}={_named(value)}" for key, value in sorted(keywords.items()))
    several = prompts if isinstance(prompts, list | tuple) else [prompts]
    return f"{_named(method)}({said}) on {' + '.join(_prompts(p) for p in several)}"


def _prompts(prompts: ClassPrompts) -> str:
    parts = [prompts.ids, prompts.roles, prompts.context]
    if prompts.name_tokens is not None:
        parts.append(prompts.name_tokens)
    if prompts.bias_net is not None:
        parts += prompts.bias_net.parts
    return f"prompts {_digest(parts)}"


def _named(value: Any) -> str:
    if isinstance(value, functools.partial):
        return describe(value, [])
    return f"{value.__module__}.{value.__qualname__}" if hasattr(value, "__qualname__") else repr(value)


def _settings(header: Mapping[str, Any]) -> Row:
    """What two runs must share to be one: as JSON gives it back, for a comparison with a file's."""
    return json.loads(json.dumps({k: v for k, v in header.items() if k not in ("versions", "hash", "kind")}))


def _versions() -> dict[str, str]:
    found = {}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


def _whole_lines(path: Path) -> list[bytes]:
    lines = path.read_bytes().splitlines(keepends=True)
    return lines[:-1] if lines and not lines[-1].endswith(b"\n") else lines


def _line(row: Mapping[str, Any]) -> bytes:
    return (json.dumps(row, ensure_ascii=False) + "\n").encode()


def _differences(name: str, there: Any, here: Any) -> list[str]:
    """What differs, each by its full name, as ``settings.views.n_views``."""
    if not (isinstance(there, dict) and isinstance(here, dict)):
        return [] if there == here else [f"{name} is {_short(there)} there and {_short(here)} here"]
    return [
        difference
        for key in sorted({*there, *here})
        for difference in _differences(f"{name}.{key}".lstrip("."), there.get(key), here.get(key))
    ]


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 120 else f"{text[:120]}…"


def merge(paths: Iterable[str | os.PathLike[str]], out: str | os.PathLike[str]) -> None:
    """One file of several parts of a run, in the order of one process; replaced at once."""
    parts = [[json.loads(line) for line in _whole_lines(Path(path))] for path in paths]
    header = parts[0][0]
    if odd := next((part[0] for part in parts if part[0]["hash"] != header["hash"]), None):
        raise ValueError(f"evaluate: the parts are of different runs: {_short(odd)} and {_short(header)}")
    rows = {(header["seeds"].index(row["seed"]), row["sample"]): row for part in parts for row in part[1:]}
    beside = Path(f"{out}.part")
    beside.write_bytes(b"".join(map(_line, [header, *(row for _, row in sorted(rows.items()))])))
    beside.replace(out)
