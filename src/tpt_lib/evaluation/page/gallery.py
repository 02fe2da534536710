"""Collect the images that some methods got right and others wrong, as compact columns for the gallery of a page."""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from tpt_lib.evaluation.run_reading import Run
from tpt_lib.evaluation.run_schema import VERDICTS, MethodResult, Row, truth_index
from tpt_lib.evaluation.run_summary import correct_answers, is_probability
from tpt_lib.evaluation.significance import paired_counts

__all__ = ["Change", "Changes", "changes_of", "dataset_titles", "fixed_and_broken", "packed"]

SHOWN = 3  # likeliest classes of an answer


class Change(NamedTuple):
    """A sample under one seed, and what each method said about it."""

    row: Row
    answers: Mapping[str, MethodResult]


class Changes(NamedTuple):
    """The samples of a dataset that methods disagree on, one right and another wrong."""

    title: str
    runs: tuple[Run, ...]
    methods: tuple[str, ...]
    listed: tuple[Change, ...]


def changes_of(runs: Sequence[Run]) -> list[Changes]:
    """Return the changes on each dataset with each model; runs of different methods on it are taken together."""
    groups: dict[tuple[str, str], list[Run]] = {}
    for run in runs:
        groups.setdefault((run.model, run.label), []).append(run)
    titles = dataset_titles(runs)
    return [_changes(titles[key], own) for key, own in groups.items()]


def dataset_titles(runs: Sequence[Run]) -> dict[tuple[str, str], str]:
    """Return the title of each model and dataset: the dataset, with the model if there are several."""
    several = len({run.model for run in runs}) > 1
    return {(run.model, run.label): f"{run.label}, {run.model}" if several else run.label for run in runs}


def _changes(title: str, runs: Sequence[Run]) -> Changes:
    found: dict[tuple[int, int], tuple[Row, dict[str, MethodResult]]] = {}
    for row in (row for run in runs for row in run.rows if "error" not in row):
        found.setdefault((row["seed"], row["sample"]), (row, {}))[1].update(row["methods"])
    methods = tuple(method for run in runs for method in run.header["methods"])
    return Changes(title, tuple(runs), methods, tuple(Change(*one) for one in found.values() if _differ(*one)))


def _differ(row: Row, answers: Mapping[str, MethodResult]) -> bool:
    truth = truth_index(row["truth"])  # type: ignore[arg-type]
    return len({answer["index"] == truth for answer in answers.values()}) == 2


def fixed_and_broken(changes: Changes) -> list[dict[str, Any]]:
    """Return for each seed how many images each method fixes and breaks relative to the first one, with McNemar's p."""
    correct = {method: correct_answers(run, method) for run in changes.runs for method in run.header["methods"]}
    base, *others = changes.methods
    rows = []
    for method in others:
        for seed in [seed for seed in correct[base] if seed in correct[method]]:
            counts = paired_counts(correct[base][seed], correct[method][seed])
            names = {"dataset": changes.title, "method": method, "relative to": base, "seed": seed}
            numbers = {"fixed": counts["only_b"], "broken": counts["only_a"], "images": counts["n"], "p": counts["p"]}
            rows.append({**names, **numbers})
    return rows


def packed(changes: Sequence[Changes], thumbnails: Sequence[Mapping[int, str]]) -> str:
    """Return the gallery's data as compressed JSON in base64, so that no text in it can close the script element.

    Each method's answers are one list of numbers, nine per image: its likeliest classes, their probabilities in thousandths,
    and the probabilities before the method; -1 is missing.
    """
    groups = [
        {
            "name": one.title,
            "classes": list(one.runs[0].header["classes"] or VERDICTS),
            "methods": list(one.methods),
            "votes": [not is_probability(run, method) for run in one.runs for method in run.header["methods"]],
            "seeds": [change.row["seed"] for change in one.listed],
            "samples": [change.row["sample"] for change in one.listed],
            "truths": [truth_index(change.row["truth"]) for change in one.listed],  # type: ignore[arg-type]
            "paths": [change.row.get("path") for change in one.listed],
            "answers": [
                [number for change in one.listed for number in _numbers(change.answers.get(method))]
                for method in one.methods
            ],
            "thumbnails": own,
        }
        for one, own in zip(changes, thumbnails, strict=True)
    ]
    text = json.dumps(groups, separators=(",", ":"))
    return base64.b64encode(gzip.compress(text.encode(), mtime=0)).decode()


def _numbers(answer: MethodResult | None) -> list[int]:
    if answer is None:
        return [-1] * 3 * SHOWN
    after = {
        **dict(zip(answer["top5"], answer.get("top5_probs", ()), strict=False)),
        answer["index"]: answer["confidence"],
    }
    before = dict(zip(answer["top5"], answer.get("zero_shot", {}).get("probs", ()), strict=False))
    likeliest = sorted(after, key=lambda one: one != answer["index"])[:SHOWN]  # of equals, top5 may have another first
    shares = [likeliest, *([round(1000 * found.get(one, -0.001)) for one in likeliest] for found in (after, before))]
    return [number for column in shares for number in [*column, *[-1] * SHOWN][:SHOWN]]
