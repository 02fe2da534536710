"""Divide an experiment into runs, one file per row, dataset and trial, so that experiments can share them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from tpt_lib.evaluation.data.registry import ENTRIES
from tpt_lib.methods.base import get_method
from tpt_lib.methods.presets import IMAGENET_VARIANTS, PRESETS
from tpt_lib.methods.prompt_ensemble import prompt_ensemble_predict
from tpt_lib.methods.template_ensemble import openai_templates
from tpt_lib.models.protocol import ClipLike
from tpt_lib.objectives import select_confident
from tpt_lib.paper.reproduction.definitions import Row
from tpt_lib.paper.reproduction.sources import Source
from tpt_lib.paper.reproduction.texts import slug
from tpt_lib.prompts.class_prompts import ClassPrompts, class_prompts
from tpt_lib.prompts.contexts import LearnedPrompt

__all__ = ["Job", "Learned", "check_used", "jobs_of", "lacking", "method_of", "needs_reward", "preset_of"]

Learned = Mapping[str, Sequence[LearnedPrompt]]


@dataclass(frozen=True)
class Job:
    """One run: a row on a dataset, with one seed and one set of learned prompts.

    Attributes:
        row: the row.
        source: the dataset.
        trial: its number among the trials of the row.
        seed: seed of the views, and of the order of a stream.
        checkpoint: which of the learned prompts to use, counted from 0.
        recipe: recipe of the views.
        out: the run file.
        store: the store of the features, or None for Bongard problems.
        stored_views: number of views in the store.
    """

    row: Row
    source: Source
    trial: int
    seed: int
    checkpoint: int
    recipe: str
    out: Path
    store: Path | None
    stored_views: int


def jobs_of(row: Row, source: Source, seeds: Sequence[int], out: Path, views: int) -> list[Job]:
    """Return the runs of a row on a dataset.

    Args:
        row: the row.
        source: the dataset.
        seeds: seeds of the experiment.
        out: the folder of a model's results.
        views: number of views in the store.

    Returns:
        One job per trial.
    """
    number = "" if not source.part or source.data is None else f"-{len(source.data)}"
    place = f"{slug(source.label)}{number}"
    recipe = row.variants if row.variants and source.name in IMAGENET_VARIANTS else row.recipe
    recipe = recipe or ENTRIES[source.name].recipe
    store = None if source.of_problems else out / "stores" / f"{place}-{recipe}-{views}"
    runs = out / ("followers" if row.preset else "paper") / place
    trials = range(1 if row.varies == "nothing" else len(seeds))
    jobs = []
    for trial in trials:
        seed, checkpoint = (seeds[0], trial) if row.varies == "checkpoint" else (seeds[trial], 0)
        name = f"{slug(row.name)}-seed{seed}" + (f"-checkpoint{checkpoint + 1}" if checkpoint else "")
        jobs.append(Job(row, source, trial, seed, checkpoint, recipe, runs / f"{name}.jsonl", store, views))
    return jobs


def lacking(row: Row, seeds: Sequence[int], learned: Learned, reward: ClipLike | None) -> str:
    """Return what a row needs that is missing, or an empty string."""
    trials = len(seeds) if row.varies == "checkpoint" else 1
    for kind in learned:
        wanted = max((_place(context) + trials for context in row.contexts if _kind(context) == kind), default=0)
        if len(learned[kind]) < wanted:
            files = "a checkpoint" if wanted == 1 else f"{wanted} checkpoints"
            given = f", but got {len(learned[kind])}" if learned[kind] else ""
            return f"needs {files} of prompts learned on ImageNet: {kind}=, --{kind}{given}"
    if needs_reward(row) and reward is None:
        return "needs a second CLIP: reward=, --reward"
    return ""


def check_used(rows: Sequence[Row], given: Mapping[str, bool]) -> None:
    """Refuse learned prompts or a reward that no row uses, given as names with whether they were passed."""
    used = {_kind(context) for row in rows for context in row.contexts}
    used |= {"reward" for row in rows if needs_reward(row)}
    if extra := [name for name, passed in given.items() if passed and name not in used]:
        raise ValueError(f"plan_experiment: none of the rows uses {' or '.join(extra)}; leave it out")


def needs_reward(row: Row) -> bool:
    """Return whether a row needs a second model."""
    return bool(row.method) and "reward" in get_method(row.method).needs


def preset_of(job: Job) -> str | None:
    """Return the dataset whose settings the method takes from its authors, or None."""
    return job.source.name if job.row.preset and job.source.name in PRESETS else None


def method_of(model: ClipLike, job: Job, learned: Learned) -> Any:
    """Return the method of a job with its prompts, as ``evaluate`` takes it."""
    assert job.source.data is not None
    data, row = job.source.data, job.row
    keywords = dict(row.settings)
    if "fraction" in keywords:
        keywords["select"] = partial(select_confident, fraction=keywords.pop("fraction"))
    predict: Any = get_method(row.method).predict
    method: Any = partial(predict, **keywords) if keywords else row.method

    def prompts(context: str) -> ClassPrompts:
        if context == "templates":
            return class_prompts(model, data.classes, template=openai_templates())
        found = learned[_kind(context)][_place(context) + job.checkpoint]
        return class_prompts(model, data.classes, template=data.template, context=found)

    several = [prompts(context) for context in row.contexts]
    if len(several) > 1:
        return prompt_ensemble_predict, several
    return (method, several[0]) if several else method


def _kind(context: str) -> str:
    return context.partition(" ")[0]


def _place(context: str) -> int:
    """Return the number of a learned prompt, counted from 0: ``"coop 2"`` is 1."""
    return int(found[0]) - 1 if (found := re.findall(r" (\d+)$", context)) else 0
