"""Check the lines of a run file, and compare the settings of two runs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from tpt_lib.evaluation.data.data_identity import differing_data
from tpt_lib.evaluation.run_schema import VERDICTS, Header, Row

__all__ = ["check_header", "check_row", "differing_settings", "short"]

HEADER = {"dataset": str, "split": str, "classes": list, "methods": list, "seeds": list, "n": int, "settings": dict}

LISTED = {"classes": str, "methods": str, "seeds": int}

RESULT: dict[str, Any] = {"index": int, "confidence": (int, float), "entropy": (int, float), "top5": list}

NOT_SETTINGS = ("kind", "versions", "hash")

HEADER_REMEDY = "Restore the file from a copy, or evaluate again with another `out`"

ROW_REMEDY = (
    "Delete this line, and evaluate with the same `out` computes its sample again; or restore the file from a copy"
)


def check_header(where: str, value: Any) -> Header:
    """Return the first line of a run file if it is a header; otherwise raise a ValueError that says where and why."""
    if problem := _header_problem(value):
        raise ValueError(f"{where}: {problem}. {HEADER_REMEDY}")
    return value


def _header_problem(value: Any) -> str | None:
    if not isinstance(value, dict) or value.get("kind") != "run":
        return f'expected the header of a run, {{"kind": "run", …}}, but got {short(value)}'
    for name, kind in HEADER.items():
        if type(value.get(name)) is not kind:
            return f"{name!r} of the header must be a {kind.__name__}, but is {short(value.get(name))}"
    for name, kind in LISTED.items():
        if odd := [one for one in value[name] if type(one) is not kind]:
            return f"{name!r} of the header must be a list of {kind.__name__}, but has {short(odd[0])}"
    if not isinstance(value.get("hash"), str):
        return "the header has no hash, which tells the parts of one run from another run"
    return None


def check_row(where: str, value: Any, header: Header) -> Row:
    """Return a line of a run file if it is a row of this run; otherwise raise a ValueError that says where and why."""
    if problem := _row_problem(value, header):
        raise ValueError(f"{where}: {problem}. {ROW_REMEDY}")
    return value


def _row_problem(value: Any, header: Header) -> str | None:
    if not isinstance(value, dict) or value.get("kind") != "row":
        return f'expected a row, {{"kind": "row", …}}, but got {short(value)}'
    n, classes = header["n"], len(header["classes"])
    if type(value.get("seed")) is not int or value["seed"] not in header["seeds"]:
        return f"seed must be one of the header's {header['seeds']}, but is {short(value.get('seed'))}"
    if not _in_range(value.get("sample"), n):
        return f"sample must be from 0 to {n - 1}, but is {short(value.get('sample'))}"
    if not _in_range(value.get("position", 0), n):
        return f"position must be from 0 to {n - 1}, but is {short(value['position'])}"
    if not isinstance(value.get("path"), str | None):
        return f"path must be a string or null, but is {short(value['path'])}"
    if "error" in value:
        return None if isinstance(value["error"], str) else f"error must be a string, but is {short(value['error'])}"
    truth = value.get("truth")
    if truth not in VERDICTS if isinstance(truth, str) else not _in_range(truth, classes):
        return f"truth must be a class from 0 to {classes - 1}, 'positive' or 'negative', but is {short(repr(truth))}"
    for name in ("methods", "seconds"):
        if not isinstance(value.get(name, {}), dict):
            return f"{name} must be an object, but is {short(value[name])}"
    if odd := [name for name, took in value.get("seconds", {}).items() if not isinstance(took, int | float)]:
        return f"seconds of {odd[0]!r} must be a number, but is {short(value['seconds'][odd[0]])}"
    problems = ((name, _result_problem(value.get("methods", {}).get(name), classes)) for name in header["methods"])
    return next((f"method {name!r}: {problem}" for name, problem in problems if problem), None)


def _result_problem(result: Any, classes: int) -> str | None:
    if not isinstance(result, dict):
        return "no result, but the header names the method"
    for name, kind in RESULT.items():
        if not isinstance(result.get(name), kind):
            return f"{name} is missing or has the wrong type: {short(result.get(name))}"
    if not _in_range(result["index"], max(classes, 2)):
        return f"index must be a class from 0 to {classes - 1}, but is {result['index']}"
    if not 0 <= result["confidence"] <= 1 + 1e-4:
        return f"confidence must be from 0 to 1, but is {result['confidence']}"
    if classes >= 5 and len(result["top5"]) != 5:
        return f"top5 must be 5 classes, but is {short(result['top5'])}"
    shown = [("", result)]
    if "zero_shot" in result:
        if not isinstance(result["zero_shot"], dict) or not isinstance(result["zero_shot"].get("top5"), list):
            return f"zero_shot must be an object with its top5, but is {short(result['zero_shot'])}"
        shown.append(("zero_shot.", result["zero_shot"]))
    return next((problem for prefix, one in shown if (problem := _top5_problem(prefix, one, classes))), None)


def _top5_problem(prefix: str, shown: dict[str, Any], classes: int) -> str | None:
    if not all(_in_range(one, classes) for one in shown["top5"]):
        return f"{prefix}top5 must be classes from 0 to {classes - 1}, but is {short(shown['top5'])}"
    for name in ("top5_probs", "probs"):
        probs = shown.get(name, [0.0] * len(shown["top5"]))
        if not isinstance(probs, list) or len(probs) != len(shown["top5"]) or not all(map(_is_share, probs)):
            return f"{prefix}{name} must be a number from 0 to 1 for each of top5, but is {short(probs)}"
    return None


def _is_share(value: Any) -> bool:
    return isinstance(value, int | float) and 0 <= value <= 1 + 1e-4


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
