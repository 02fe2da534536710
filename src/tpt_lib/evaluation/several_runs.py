"""Check that the runs of a report belong together, and compare two methods over all of them."""

from __future__ import annotations

from collections.abc import Sequence

from tpt_lib.evaluation.run_checks import differing_settings
from tpt_lib.evaluation.run_file import Run
from tpt_lib.evaluation.run_summary import correct_answers
from tpt_lib.evaluation.significance import paired_counts
from tpt_lib.evaluation.table import Table

__all__ = ["check_comparable", "compare_methods"]


def check_comparable(runs: Sequence[Run]) -> None:
    """Refuse runs on one dataset with different samples, and two runs of one method with different settings."""
    first: dict[tuple[str, str], Run] = {}
    known: dict[tuple[str, str, str], Run] = {}
    for run in runs:
        other = first.setdefault((run.model, run.label), run)
        if any(other.header[name] != run.header[name] for name in ("classes", "n")):
            raise ValueError(f"Report: two runs on {run.label} have different samples: {_differences(other, run)}")
        for method in run.header["methods"]:
            other = known.setdefault((run.model, run.label, method), run)
            if other is not run:
                raise ValueError(
                    f"Report: two runs of {method!r} on {run.label} differ in {_differences(other, run)}; report them "
                    "separately, or give the method another name in one of them"
                )


def compare_methods(runs: Sequence[Run], a: str, b: str) -> Table:
    """Compare two methods by McNemar's exact test, for each model, dataset and seed; see ``Report.compare``."""
    methods = list(dict.fromkeys(method for run in runs for method in run.header["methods"]))
    for name in (a, b):
        if name not in methods:
            raise ValueError(f"compare: there is no method {name!r}; there are {', '.join(map(repr, methods))}")
    correct: dict[tuple[str, str], dict[str, dict[int, dict[int, bool]]]] = {}
    for run in runs:
        for method in run.header["methods"]:
            correct.setdefault((run.model, run.label), {})[method] = correct_answers(run, method)
    rows = []
    for (model, label), by_method in correct.items():
        one, two = by_method.get(a, {}), by_method.get(b, {})
        for seed in [seed for seed in one if seed in two]:
            counts = paired_counts(one[seed], two[seed])
            if counts["n"]:
                rows.append({"model": model, "dataset": label, "seed": seed, **counts})
    if not rows:
        raise ValueError(f"compare: {a!r} and {b!r} share no samples of a dataset under the same seed")
    note = f"Right by both, by {a} only (a), by {b} only (b), by neither; p: McNemar's exact test."
    return Table(tuple(rows), note)


def _differences(a: Run, b: Run) -> str:
    differing = differing_settings(a.header, b.header)
    return "; ".join(f"{name}: {one!r} and {two!r}" for name, (one, two) in differing.items()) or "their hash"
