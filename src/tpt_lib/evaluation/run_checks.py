"""Check the lines of a run file, and compare the settings of two runs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from tpt_lib.evaluation.data.data_identity import differing_data
from tpt_lib.evaluation.run_schema import VERDICTS, Header, Row

__all__ = ["check_header", "check_row", "differing_settings", "short"]

HEADER = {"dataset": str, "split": str, "classes": list, "methods": list, "seeds": list, "n": int, "settings": dict}

RESULT: dict[str, Any] = {"index": int, "confidence": (int, float), "entropy": (int, float), "top5": list}

NOT_SETTINGS = ("kind", "versions", "hash")


def check_header(where: str, value: Any) -> Header:
    """Return the first line of a run file if it is a header; otherwise raise a ValueError that says where and why."""
    if not isinstance(value, dict) or value.get("kind") != "run":
        raise ValueError(f'{where}: expected the header of a run, {{"kind": "run", …}}, but got {short(value)}')
    for name, kind in HEADER.items():
        if type(value.get(name)) is not kind:
            raise ValueError(f"{where}: {name!r} of the header must be a {kind.__name__}, but is {value.get(name)!r}")
    if not isinstance(value.get("hash"), str):
        raise ValueError(f"{where}: the header has no hash, which tells the parts of one run from another run")
    return value  # type: ignore[return-value]


def check_row(where: str, value: Any, header: Header) -> Row:
    """Return a line of a run file if it is a row of this run; otherwise raise a ValueError that says where and why."""
    if not isinstance(value, dict) or value.get("kind") != "row":
        raise ValueError(f'{where}: expected a row, {{"kind": "row", …}}, but got {short(value)}')
    n, classes = header["n"], len(header["classes"])
    if value.get("seed") not in header["seeds"]:
        raise ValueError(f"{where}: seed must be one of the header's {header['seeds']}, but is {value.get('seed')!r}")
    if not _in_range(value.get("sample"), n):
        raise ValueError(f"{where}: sample must be from 0 to {n - 1}, but is {value.get('sample')!r}")
    if "error" in value:
        return value  # type: ignore[return-value]
    truth = value.get("truth")
    if truth not in VERDICTS if isinstance(truth, str) else not _in_range(truth, classes):
        raise ValueError(
            f"{where}: truth must be a class from 0 to {classes - 1}, 'positive' or 'negative', but is {truth!r}"
        )
    for method in header["methods"]:
        _check_result(f"{where}: method {method!r}", value.get("methods", {}).get(method), classes)
    return value  # type: ignore[return-value]


def _check_result(where: str, result: Any, classes: int) -> None:
    if result is None:
        raise ValueError(f"{where}: no result, but the header names the method")
    for name, kind in RESULT.items():
        if not isinstance(result.get(name), kind):
            raise ValueError(f"{where}: {name} is missing or has the wrong type: {result.get(name)!r}")
    if not _in_range(result["index"], max(classes, 2)):
        raise ValueError(f"{where}: index must be a class from 0 to {classes - 1}, but is {result['index']}")
    if not 0 <= result["confidence"] <= 1 + 1e-4:
        raise ValueError(f"{where}: confidence must be from 0 to 1, but is {result['confidence']}")
    if classes >= 5 and len(result["top5"]) != 5:
        raise ValueError(f"{where}: top5 must be 5 classes, but is {result['top5']}")


def _in_range(value: Any, stop: int) -> bool:
    return type(value) is int and 0 <= value < stop


def differing_settings(a: Header, b: Header) -> dict[str, tuple[Any, Any]]:
    """Return the settings in which two headers differ, by full name, such as ``settings.views.n_views``.

    Returns:
        The values of both for each name; empty if the headers are of one run.
    """
    there, here = _settings(a), _settings(b)
    data = [each["settings"].pop("data", None) for each in (there, here)]
    if all(isinstance(each, dict) for each in data):
        found = {f"settings.data.{name}": values for name, values in differing_data(*data).items()}
    else:
        found = dict(_differences("settings.data", *data))
    return {**dict(_differences("", there, here)), **found}


def _settings(header: Header) -> dict[str, Any]:
    """Return what two runs must share to be one, as JSON reads it back."""
    return json.loads(json.dumps({key: value for key, value in header.items() if key not in NOT_SETTINGS}))


def _differences(name: str, a: Any, b: Any) -> Iterator[tuple[str, tuple[Any, Any]]]:
    if isinstance(a, dict) and isinstance(b, dict):
        for key in sorted({*a, *b}):
            yield from _differences(f"{name}.{key}".lstrip("."), a.get(key), b.get(key))
    elif a != b:
        yield name, (a, b)


def short(value: Any, limit: int = 120) -> str:
    """Return a value as text for an error message, cut to a limit."""
    text = value if isinstance(value, str) else repr(value)
    return text if len(text) <= limit else f"{text[:limit]}…"
