"""Estimate the cost of an experiment before it runs: measure one image and one step, and count what is left."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch

from tpt_lib.evaluation.data.bongard_hoi import Problem
from tpt_lib.evaluation.profiling import measured
from tpt_lib.evaluation.run_lines import complete_lines
from tpt_lib.features.encode import device_of, encode_views
from tpt_lib.features.store_index import INDEX, missing_shards, read_index, shard_samples
from tpt_lib.methods.bongard import bongard_tpt
from tpt_lib.methods.tpt import tpt_predict
from tpt_lib.models.protocol import ClipLike
from tpt_lib.prompts.class_prompts import class_prompts
from tpt_lib.views.augment import augment_views

__all__ = [
    "BYTES_PER_ROW",
    "EncodingCost",
    "encoding_cost",
    "images_left",
    "rows_left",
    "seconds_of_problem",
    "step_cost",
]

BYTES_PER_ROW = 1000  # of a run file; rows of TPT have about 700


@dataclass(frozen=True)
class EncodingCost:
    """Seconds per image to make and encode its views, and bytes per image that a store keeps of them."""

    seconds: float
    stored: int


def encoding_cost(model: ClipLike, image: Any, recipe: str, views: int) -> EncodingCost:
    """Measure making and encoding the views of one image, after a first pass with one view."""
    device = device_of(model)

    def encoded(n_views: int) -> torch.Tensor:
        options: Any = {"recipe": recipe, "n_views": n_views}
        try:
            made = augment_views(image, model.image_spec, **options)
        except (ValueError, OSError):  # the run records the error; the estimate can use any image
            made = augment_views(torch.zeros(3, 375, 500, dtype=torch.uint8), model.image_spec, **options)
        return encode_views(model, made.to(device))

    encoded(1)
    features, cost = measured(partial(encoded, views), device)
    return EncodingCost(cost.seconds, features.shape[-1] * 2 * views)


def step_cost(model: ClipLike, classes: Sequence[str], views: int) -> float:
    """Measure the seconds of one step of TPT on one image, after the text features at the initial context are computed."""
    device = device_of(model)
    prompts = class_prompts(model, classes)
    height, width = model.image_spec.size
    plain = encode_views(model, torch.zeros(1, 3, height, width, device=device))
    noise = torch.randn(views, plain.shape[-1], generator=torch.Generator().manual_seed(0)).to(device)
    features = torch.nn.functional.normalize(plain + 0.01 * noise, dim=-1)
    step = partial(tpt_predict, model, prompts, features)
    step()
    return measured(step, device)[1].seconds


def seconds_of_problem(model: ClipLike, problem: Problem) -> float:
    """Measure the seconds of one Bongard problem."""
    positives, negatives, queries = (list(part) for part in problem[:3])
    solve = partial(bongard_tpt, model, positives, negatives, queries)
    return measured(solve, device_of(model))[1].seconds


def images_left(store: Path, model: str, seeds: Collection[int], n: int) -> int:
    """Return the number of images of a store that are still to be encoded, over all seeds."""
    if not (store / INDEX).is_file():
        return n * len(seeds)
    index = read_index("plan_experiment", store)
    missing = [shard for seed in seeds for shard in missing_shards(store, index, model, seed)]
    return sum(len(shard_samples(index, shard)) for shard in missing)


def rows_left(out: Path, n: int) -> int:
    """Return the number of rows that a run file of ``n`` samples still lacks."""
    done = len(complete_lines(out.read_bytes())) - 1 if out.is_file() else 0
    return n - min(n, max(0, done))
