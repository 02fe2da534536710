"""Summarize runs for a report: answers, scores, averages and notes."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from statistics import fmean
from typing import Any

import torch

from tpt_lib.evaluation.metrics import SCORES, Outcomes, averages, mean_std
from tpt_lib.evaluation.published import find_number
from tpt_lib.evaluation.run_file import Row, Run, truth_index

__all__ = [
    "average_rows",
    "correct_answers",
    "is_probability",
    "outcomes",
    "outcomes_by_seed",
    "paper_columns",
    "run_notes",
    "stream_outcomes",
    "summarize",
]


def outcomes(rows: Iterable[Row], method: str, n_classes: int) -> Outcomes:
    """Return a method's answers in the rows of a run, without those that are errors."""
    good = [row for row in rows if "error" not in row]
    results = [row["methods"][method] for row in good]
    return Outcomes(
        truth=torch.tensor([_truth(row) for row in good], dtype=torch.long),
        index=torch.tensor([one["index"] for one in results], dtype=torch.long),
        confidence=torch.tensor([one["confidence"] for one in results], dtype=torch.float).clamp(0, 1),
        entropy=torch.tensor([one["entropy"] for one in results], dtype=torch.float),
        top5=torch.tensor([one["top5"] for one in results], dtype=torch.long).reshape(-1, 5)
        if n_classes >= 5
        else None,
    )


def outcomes_by_seed(run: Run, method: str) -> dict[int, Outcomes]:
    """Return a method's answers under each seed."""
    rows: dict[int, list[Row]] = {}
    for row in run.rows:
        rows.setdefault(row["seed"], []).append(row)
    return {seed: outcomes(own, method, run.n_classes) for seed, own in rows.items()}


def is_probability(run: Run, method: str) -> bool:
    """Return whether a method's confidences are probabilities; shares of votes are not."""
    return method not in run.header["settings"].get("not_probabilities", ())


def correct_answers(run: Run, method: str) -> dict[int, dict[int, bool]]:
    """Return for each seed and sample whether a method was right, without samples that are errors."""
    found: dict[int, dict[int, bool]] = {}
    for row in run.rows:
        if "error" not in row:
            found.setdefault(row["seed"], {})[row["sample"]] = row["methods"][method]["index"] == _truth(row)
    return found


def stream_outcomes(rows: Iterable[Row]) -> dict[str, list[bool]]:
    """Return whether each method was right on each image of one stream, in its order, without rows that have no result."""
    found: dict[str, list[bool]] = {}
    for row in sorted(rows, key=lambda row: row.get("position", 0)):
        if row["truth"] is None:
            continue
        for name, said in row.get("methods", {}).items():
            found.setdefault(name, []).append(said["index"] == truth_index(row["truth"]))
    return found


def summarize(run: Run, method: str, scores_by_seed: Mapping[int, Mapping[str, float | None]]) -> dict[str, Any]:
    """Return a method's row of a report; see ``Report.rows``."""
    good = [row for row in run.rows if "error" not in row]
    seconds = [row["seconds"][method] for row in good if method in row.get("seconds", {})]
    summary: dict[str, Any] = {
        "model": run.model,
        "dataset": run.label,
        "method": method,
        "n": len({row["sample"] for row in good}),
        "errors": len({row["sample"] for row in run.rows if "error" in row}),
        "seeds": len(scores_by_seed),
    }
    for name in SCORES:
        summary[name], summary[f"{name}_std"] = mean_std([scores[name] for scores in scores_by_seed.values()])
    summary["seconds"] = fmean(seconds) if seconds else None
    return {**summary, **paper_columns(run.label, method, run.model, len(scores_by_seed))}


def average_rows(
    scores: Mapping[tuple[Run, str], Mapping[int, Mapping[str, float | None]]],
) -> list[dict[str, Any]]:
    """Return the averages of the paper's tables, from the scores of each run and method by seed; see ``Report.averages``."""
    accuracies: dict[tuple[str, str], dict[str, dict[int, float]]] = {}
    for (run, method), by_seed in scores.items():
        top1 = {seed: found["top1"] for seed, found in by_seed.items() if found["top1"] is not None}
        accuracies.setdefault((run.model, method), {})[run.label] = top1
    rows = []
    for (model, method), by_dataset in accuracies.items():
        for name, values in averages(by_dataset).items():
            mean, std = mean_std(list(values.values()))
            row = {"model": model, "dataset": name, "method": method, "seeds": len(values)}
            rows.append({**row, "top1": mean, "top1_std": std, **paper_columns(name, method, model, len(values))})
    return sorted(rows, key=lambda row: row["dataset"])


def paper_columns(dataset: str, method: str, model: str, seeds: int) -> dict[str, Any]:
    """Return the published accuracy, its deviation and its source as columns of a report. Missing values are None."""
    number = find_number(dataset, method, model, seeds=seeds)
    if number is None:
        return dict.fromkeys(("paper", "paper_std", "paper_table", "paper_source"))
    return {
        "paper": number.value,
        "paper_std": number.std,
        "paper_table": number.table,
        "paper_source": number.source,
    }


def run_notes(run: Run) -> list[str]:
    """Return what a reader must know about a run: preset, stream, shared time, missing rows, errors, notes about its file."""
    seconds: dict[str, list[float]] = {}
    for row in run.rows:
        for name, value in row.get("seconds", {}).items():
            if name not in run.header["methods"]:
                seconds.setdefault(name, []).append(value)
    notes = []
    if preset := run.header["settings"].get("preset"):
        methods = run.header["settings"]["methods"].items()
        used = {name: re.match(r"[\w.]+\((.*)\) on ", described) for name, described in methods}
        shown = "; ".join(f"{name} {found[1] if found else 'defaults'}" for name, found in used.items())
        notes.append(f"{run.label}: settings of the methods' authors for {preset}: {shown}")
    if stream := run.header["settings"].get("stream"):
        ranks = f", with a stream of its own on each of {stream['ranks']} ranks" if "ranks" in stream else ""
        size = f"; those that learn from batches got {stream['batch_size']} at a time" if "batch_size" in stream else ""
        notes.append(f"{run.label}: online methods saw the images in the order {stream['order']!r}{ranks}{size}")
    if shared := [f"{name} {fmean(values):.3g} s" for name, values in seconds.items()]:
        notes.append(f"{run.label}: all methods shared {', '.join(shared)} per image")
    expected = run.header["n"] * len(run.header["seeds"])
    if len(run.rows) < expected:
        notes.append(f"{run.label}: not finished, {len(run.rows)} of {expected} rows")
    if errors := [row for row in run.rows if "error" in row]:
        first = f"sample {errors[0]['sample']}: {errors[0]['error']}"
        notes.append(f"{run.label}: {len(errors)} row(s) with an error are left out; the first is {first}")
    return [*notes, *run.notes]


def _truth(row: Row) -> int:
    assert row["truth"] is not None, "only rows with an error have no truth"
    return truth_index(row["truth"])
