"""Run a planned reproduction: encode each dataset once, then run every row from its store. All work can be resumed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from tpt_lib.evaluation.report import Report
from tpt_lib.evaluation.run.describe_store import shown_bytes
from tpt_lib.evaluation.run.distributed import share
from tpt_lib.evaluation.run.encode_dataset import encode_dataset
from tpt_lib.evaluation.run.evaluate import evaluate
from tpt_lib.evaluation.run.evaluate_bongard import evaluate_bongard
from tpt_lib.features.encode import device_of
from tpt_lib.features.store import FeatureStore
from tpt_lib.paper.reproduction.estimate import MODEL, REWARD, stores_of
from tpt_lib.paper.reproduction.jobs import Job, method_of, needs_reward, preset_of
from tpt_lib.paper.reproduction.outcome import Reproduction, Result
from tpt_lib.paper.reproduction.plan import Plan
from tpt_lib.prompts.class_prompts import class_prompts

__all__ = ["reproduce"]


def reproduce(plan: Plan, *, progress: bool | None = None) -> Reproduction:
    """Run an experiment and compare its accuracies with the published ones.

    The views of each dataset are encoded once, into a store from which all rows run. The same plan resumes a
    call that was stopped or killed, and experiments with the same ``out`` share stores and runs. The page ``NAME.html`` in the
    plan's folder has the result so far; it is written after each dataset.

    Args:
        plan: what ``plan_experiment`` returned.
        progress: whether to show progress bars (default None: only on a terminal).

    Returns:
        The accuracies next to the published ones.

    Raises:
        ValueError: if there is nothing to run, or a file of ``out`` belongs to a run with different settings.
        OSError: if the disk has less free space than needed.

    >>> plan = tpt_lib.paper.plan_experiment(model, "table1", folder, out=folder / "results")
    >>> reproduce(plan)
    Traceback (most recent call last):
    ValueError: reproduce: there is nothing to run of table1: none of its datasets was found
    """
    if not plan.jobs:
        what = "none of its datasets was found" if plan.sources else "none of its rows can be run with what was given"
        raise ValueError(f"reproduce: there is nothing to run of {plan.experiment.name}: {what}")
    if plan.estimate.bytes > plan.free:
        raise OSError(
            f"reproduce: {shown_bytes(plan.estimate.bytes)} are needed, but the disk of {str(plan.out)!r} has "
            f"{shown_bytes(plan.free)} free; make room, or pass another out or a limit"
        )
    done = Reproduction(plan, ())
    for jobs in [*stores_of(plan.jobs).values(), *([job] for job in plan.jobs if job.store is None)]:
        done = replace(done, results=(*done.results, *_results(plan, jobs, progress)))
        if share()[0] == 0:
            done.to_html(done.page)
    return done


def _results(plan: Plan, jobs: Sequence[Job], progress: bool | None) -> list[Result]:
    """Return the results of jobs that share a store, or of one job on Bongard problems, which have no store."""
    if jobs[0].store is not None:
        store = _encoded(plan, jobs, progress)
        return [_result(job, _evaluated(plan, job, store, progress)) for job in jobs]
    (job,) = jobs
    data: Any = job.source.data
    options: Any = {"out": job.out, "seeds": [job.seed], "progress": progress}
    return [_result(job, evaluate_bongard(plan.model, data, {job.row.name: job.row.method}, **options))]


def _encoded(plan: Plan, jobs: Sequence[Job], progress: bool | None) -> FeatureStore:
    """Return the store of some jobs, after encoding what it lacks."""
    first: Any = jobs[0]
    options: Any = {"recipe": first.recipe, "n_views": first.stored_views, "progress": progress}
    data, place = first.source.data, first.store
    store = encode_dataset(plan.model, data, place, name=MODEL, seeds=_seeds(jobs), **options)
    rewarded = [job for job in jobs if needs_reward(job.row)]
    if rewarded and plan.reward is not None:
        encode_dataset(plan.reward, data, place, name=REWARD, seeds=_seeds(rewarded), **options)
        return FeatureStore.open(place)
    return store


def _evaluated(plan: Plan, job: Job, store: FeatureStore, progress: bool | None) -> Report:
    options: Any = {"progress": progress, "n_views": job.row.views, "preset": preset_of(job)}
    if device_of(plan.model).type != "cpu":
        options["batch_size"] = 8
    if needs_reward(job.row) and plan.reward is not None:
        options["reward"] = plan.reward, class_prompts(plan.reward, store.classes, template=store.template)
    methods = {job.row.name: method_of(plan.model, job, plan.learned)}
    return evaluate(plan.model, store, methods, out=job.out, seeds=[job.seed], **options)


def _seeds(jobs: Sequence[Job]) -> list[int]:
    return sorted({job.seed for job in jobs})


def _result(job: Job, report: Report) -> Result:
    (row,) = report.rows()
    return Result(job, row["top1"], row["n"], row["errors"])
