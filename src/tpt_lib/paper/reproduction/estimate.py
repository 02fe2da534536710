"""Add up the remaining cost of an experiment's runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tpt_lib.models.protocol import ClipLike
from tpt_lib.paper.reproduction.cost import (
    BYTES_PER_ROW,
    EncodingCost,
    encoding_cost,
    images_left,
    rows_left,
    seconds_of_problem,
    step_cost,
)
from tpt_lib.paper.reproduction.jobs import Job, needs_reward

__all__ = ["MODEL", "REWARD", "Estimate", "estimate", "stores_of"]

MODEL, REWARD = "model", "reward"  # names of the models in a store


@dataclass(frozen=True)
class Estimate:
    """The work that is left.

    Attributes:
        images: number of images to encode, counted once per seed, recipe and model.
        encoding: seconds of making and encoding their views.
        rows: number of rows to write.
        tuning: seconds of prompt tuning; the time of other methods is short and not counted.
        stored: bytes of features.
        run_files: bytes of run files.
    """

    images: int = 0
    encoding: float = 0.0
    rows: int = 0
    tuning: float = 0.0
    stored: int = 0
    run_files: int = 0

    @property
    def bytes(self) -> int:
        """Bytes of everything."""
        return self.stored + self.run_files


def stores_of(jobs: Sequence[Job]) -> dict[Path, list[Job]]:
    """Return the jobs of each store."""
    found: dict[Path, list[Job]] = {}
    for job in jobs:
        if job.store is not None:
            found.setdefault(job.store, []).append(job)
    return found


def estimate(model: ClipLike, reward: ClipLike | None, jobs: Sequence[Job], views: int) -> Estimate:
    """Measure one image and one step, and add up the cost of what is left."""
    images, encoding, stored = _encoding(model, reward, jobs, views)
    steps: dict[int, float] = {}
    rows, tuning = 0, 0.0
    for job in jobs:
        assert job.source.data is not None
        data = job.source.data
        per_sample = 2 if job.source.of_problems else 1  # one row per query
        left = rows_left(job.out, per_sample * len(data))
        rows += left
        if left and job.store is None:
            tuning += left / per_sample * seconds_of_problem(model, data.samples[0])
        elif left and job.row.steps:
            if len(data.classes) not in steps:
                steps[len(data.classes)] = step_cost(model, data.classes, views)
            tuning += left * job.row.steps * steps[len(data.classes)]
    return Estimate(images, encoding, rows, tuning, stored, rows * BYTES_PER_ROW)


def _encoding(model: ClipLike, reward: ClipLike | None, jobs: Sequence[Job], views: int) -> tuple[int, float, int]:
    costs: dict[tuple[str, str], EncodingCost] = {}
    images, seconds, stored = 0, 0.0, 0
    for store, own in stores_of(jobs).items():
        data, recipe = own[0].source.data, own[0].recipe
        assert data is not None
        for name, one in {MODEL: model, REWARD: reward}.items():
            seeds = {job.seed for job in own if name == MODEL or needs_reward(job.row)}
            left = images_left(store, name, seeds, len(data))
            if one is None or not left:
                continue
            if (name, recipe) not in costs:
                costs[name, recipe] = encoding_cost(one, data.samples[0][0], recipe, views)
            images += left
            seconds += left * costs[name, recipe].seconds
            stored += left * costs[name, recipe].stored
    return images, seconds, stored
