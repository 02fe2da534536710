"""Evaluate methods on Bongard problems: each is encoded once for all methods, and has one row per query on disk."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from tpt_lib.evaluation.data.data_identity import dataset_identity
from tpt_lib.evaluation.data.eval_set import EvalSet
from tpt_lib.evaluation.data.samples import shown_path
from tpt_lib.evaluation.metrics import require_torchmetrics
from tpt_lib.evaluation.report import Report
from tpt_lib.evaluation.run.checks import check_batch_size, check_seeds
from tpt_lib.evaluation.run.distributed import share
from tpt_lib.evaluation.run.progress import ProgressBar
from tpt_lib.evaluation.run.settings import described_methods
from tpt_lib.evaluation.run_file import MethodResult, Row, RunFile, error_row, method_result, result_row, run_header
from tpt_lib.evaluation.run_lines import check_is_file
from tpt_lib.features.encode import as_features
from tpt_lib.methods.base import check_arguments
from tpt_lib.methods.bongard import SOLVERS, Solver, bongard_tpt, bongard_tpt_many
from tpt_lib.methods.bongard_prediction import SIDES, BongardPrediction
from tpt_lib.models.identity import check_known, identify
from tpt_lib.models.protocol import ClipLike
from tpt_lib.types import PathLike

__all__ = ["evaluate_bongard"]

Solvers = str | Solver | Sequence[str | Solver] | Mapping[str, str | Solver]


def evaluate_bongard(
    model: ClipLike,
    dataset: EvalSet,
    methods: Solvers,
    *,
    out: PathLike,
    seeds: Sequence[int] = (0,),
    batch_size: int = 8,
    strict: bool = False,
    retry_errors: bool = False,
    progress: bool | None = None,
) -> Report:
    """Evaluate one method or several on Bongard problems.

    A call with the ``out`` of a run that was stopped or killed resumes it; a finished run is only read.

    Args:
        model: the model.
        dataset: what ``load_dataset("bongard-hoi", …)`` returned, or an ``EvalSet`` of tuples (positives, negatives, queries,
            truths), the last being ``"positive"`` or ``"negative"`` for each query.
        methods: ``"prototype"``, ``"tpt"``, a function with the signature of ``bongard_prototype``, or a list of them; or a
            dict from the name in the report to a method. ``bongard_tpt`` gets the run's seed.
        out: the run file, as for ``evaluate``, with a row per seed and query.
        seeds: seeds of the initial tokens (default ``(0,)``).
        batch_size: number of problems tuned together (default 8). Affects speed and memory, not results.
        strict: whether to stop at a problem with an image that cannot be used (default False: record the error as a row
            for each of its queries).
        retry_errors: whether a resumed run tries every problem with an error again, as for ``evaluate`` (default False).
        progress: whether to show a bar with the accuracy so far (default: only on a terminal).

    Returns:
        The report of the run.

    Raises:
        ValueError: if ``out`` belongs to a run with different settings or is not a run file; it is not changed.
        BlockingIOError: if another process is writing ``out``.

    >>> sides = torch.nn.functional.normalize(torch.randn(2, 1, 256) + 0.3 * torch.randn(2, 7, 256), dim=-1)
    >>> problem = (sides[0, :6], sides[1, :6], sides[:, 6], ("positive", "negative"))
    >>> data = tpt_lib.EvalSet("mine", [problem], ("positive", "negative"))
    >>> report = evaluate_bongard(model, data, "prototype", out=f"{folder}/run.jsonl")
    >>> report.rows()[0]["n"]
    2
    """
    check_is_file(out)
    require_torchmetrics()
    solvers = _solvers(methods)
    check_seeds("evaluate_bongard", seeds)
    check_batch_size("evaluate_bongard", batch_size)
    if share()[1] > 1:
        raise RuntimeError(
            f"evaluate_bongard: runs in one process, but this is one of {share()[1]} ranks, which would all write {out}; start "
            "one process per split, each with its own out"
        )
    samples: Any = dataset.samples
    starts = [0]  # index of the first query of each problem
    for problem in samples:
        starts.append(starts[-1] + len(_truths(problem)))
    described = described_methods("evaluate_bongard", {name: (solver, ()) for name, solver in solvers.items()})
    identity = {**identify(model), "methods": described, "data": dataset_identity(dataset)}
    check_known("evaluate_bongard", identity, Path(out))
    header = run_header(dataset.name, dataset.split, SIDES, solvers, seeds, starts[-1], identity)
    with (
        RunFile(out, header, retry_errors=retry_errors) as run,
        ProgressBar(run, len(seeds) * starts[-1], progress) as bar,
    ):
        for seed, queries in run.left.items():
            wanted = set(queries)
            left = [i for i in range(len(samples)) if not wanted.isdisjoint(range(starts[i], starts[i + 1]))]
            for first in range(0, len(left), batch_size):
                problems = [(starts[i], samples[i]) for i in left[first : first + batch_size]]
                made = _rows(model, solvers, problems, seed, strict, dataset.root)
                rows = [row for row in made if row["sample"] in wanted]
                run.append(rows)
                bar.add(rows)
    return Report.read([out])


def _solvers(methods: Solvers) -> dict[str, Solver]:
    if not isinstance(methods, Mapping):
        several: Any = methods if isinstance(methods, list | tuple) else [methods]
        titles = {"tpt": "TPT"}
        methods = {
            titles.get(one, one) if isinstance(one, str) else getattr(one, "__name__", "method"): one for one in several
        }
    if unknown := [one for one in methods.values() if isinstance(one, str) and one.lower() not in SOLVERS]:
        raise ValueError(f"evaluate_bongard: there is no method {unknown[0]!r}; there are {', '.join(SOLVERS)}")
    solvers = {name: SOLVERS[one.lower()] if isinstance(one, str) else one for name, one in methods.items()}
    if not solvers:
        raise ValueError("evaluate_bongard: at least one method is needed, but got none")
    for name, solver in solvers.items():
        check_arguments(f"evaluate_bongard: {name!r}", solver, 4)
    return solvers


def _truths(problem: Any) -> tuple[str, ...]:
    if not isinstance(problem, tuple | list) or len(problem) != 4 or not set(problem[3]) <= set(SIDES):
        raise ValueError(
            "evaluate_bongard: a problem is (positives, negatives, queries, truths), the last 'positive' or 'negative' for "
            f"each query, but got {problem!r:.80}"
        )
    return tuple(problem[3])


def _rows(
    model: ClipLike,
    solvers: Mapping[str, Solver],
    problems: list[tuple[int, Any]],
    seed: int,
    strict: bool,
    root: str | None,
) -> list[Row]:
    """Return a row per query of each problem, in order; a problem comes with the index of its first query."""
    start = time.perf_counter()
    encoded = [_encoded(model, problem, strict) for _, problem in problems]
    good = [features for features in encoded if not isinstance(features, str)]
    seconds = {"features": (time.perf_counter() - start) / len(problems)}
    results: dict[str, list[BongardPrediction]] = {}
    for name, solver in solvers.items():
        start = time.perf_counter()
        results[name] = _many(solver, seed)(model, good) if good else []
        seconds[name] = (time.perf_counter() - start) / max(1, len(good))
    rows: list[Row] = []
    numbers = iter(range(len(good)))
    for (first, problem), features in zip(problems, encoded, strict=True):
        at = None if isinstance(features, str) else next(numbers)
        for query, truth in enumerate(_truths(problem)):
            path = shown_path(problem[2][query], root)
            if at is None:
                rows.append(error_row(seed, first + query, truth, str(features), path))
                continue
            said = {name: _result(each[at].logits[query]) for name, each in results.items()}
            rows.append(result_row(seed, first + query, truth, said, seconds, path))
    return rows


def _result(logits: Tensor) -> MethodResult:
    return method_result(logits, top=0)


def _encoded(model: ClipLike, problem: Any, strict: bool) -> tuple[Tensor, ...] | str:
    try:
        images = [part if isinstance(part, torch.Tensor) else list(part) for part in problem[:3]]
        return tuple(as_features("evaluate_bongard", model, part) for part in images)
    except (ValueError, OSError, MemoryError) as error:
        if strict:
            raise
        return f"{type(error).__name__}: {error}"


def _many(solver: Solver, seed: int) -> Callable[..., list[BongardPrediction]]:
    """Return a solver of several problems, which tunes them together if the method can."""
    keywords: dict[str, Any] = {}
    inner: Any = solver
    while isinstance(inner, functools.partial):
        keywords, inner = {**inner.keywords, **keywords}, inner.func
    if inner is bongard_tpt:
        return functools.partial(bongard_tpt_many, **{"seed": seed, **keywords})
    return lambda model, problems: [solver(model, *problem) for problem in problems]
