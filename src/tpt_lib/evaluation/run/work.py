"""Turn samples into rows of a run, in this process or another.

Results are read from an accelerator once per group, after the next group was started.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from tpt_lib.evaluation.data.samples import listed_file, shown_path
from tpt_lib.evaluation.run.clock import Clock
from tpt_lib.evaluation.run.items import Item, Items, make_views, read_ahead, stored_items
from tpt_lib.evaluation.run_file import MethodResult, Row, error_row, method_results, result_row
from tpt_lib.features.encode import encode_views
from tpt_lib.features.store import FeatureStore
from tpt_lib.methods.cases import Case, rewards_of
from tpt_lib.methods.reward import RewardModel, feature_similarities, similarities
from tpt_lib.models.protocol import ClipLike, ImageSpec
from tpt_lib.prediction import Prediction
from tpt_lib.prompts.class_prompts import ClassPrompts
from tpt_lib.views.settings import ViewSettings


@dataclass(frozen=True)
class Started:
    """Predictions of a group of samples, which a device may still be computing, and the times at which parts began."""

    seed: int
    group: list[Item]
    found: dict[str, Prediction]
    clock: Clock


@dataclass(frozen=True)
class Work:
    """Turn samples into rows. It can be pickled if its model, methods and samples can; caches are not.

    ``samples`` is a dataset, or a store of its features, in which the reward models have the names ``reward_names``. If fewer
    than ``smallest`` images of a group can be used, none of them is.
    """

    model: ClipLike
    cases: Sequence[Case]
    samples: Any
    views: ViewSettings
    strict: bool
    root: str | None = None
    reward_names: tuple[str, ...] = ()
    smallest: int = 1

    def __call__(self, seed: int, samples: list[int]) -> list[Row]:
        """Return the rows of samples, computed in this process."""
        return self.finish(self.start(seed, list(self.items(seed, samples, 0))))

    @property
    def prompts(self) -> ClassPrompts:
        prompts = self.cases[0].prompts
        return prompts if isinstance(prompts, ClassPrompts) else prompts[0]

    @property
    def device(self) -> torch.device:
        return self.prompts.context.device

    def failed(self, seed: int, sample: int, error: str) -> Row:
        """Return the error row of a sample that no process could read."""
        return error_row(seed, sample, None, error, shown_path(listed_file(self.samples, sample), self.root))

    def items(self, seed: int, samples: list[int], num_workers: int) -> Iterator[Item]:
        """Yield samples, read by ``num_workers`` processes with one thread each."""
        if isinstance(self.samples, FeatureStore):
            stored = self.samples.seed(seed)
            return stored_items(stored, [stored.of_model(name) for name in self.reward_names], samples)
        specs = self._specs if self.device.type == "cpu" else []
        views = replace(self.views, seed=seed)
        data = Items(self.samples, samples, specs, views, self.root, len(self.prompts.names))
        return read_ahead(data, num_workers, self.device)

    def start(self, seed: int, group: list[Item]) -> Started:
        """Compute the predictions of a group of samples, without waiting for an accelerator."""
        clock = Clock(self.device)
        for item in group:
            if item.pixels is not None:
                make_views(item, self._specs, replace(self.views, seed=seed), self.device)
        bad, good = [item for item in group if item.error], [item for item in group if not item.error]
        if len(good) < self.smallest:
            for item in good:
                item.error = (
                    f"ValueError: a batch needs {self.smallest} or more images, but only {len(good)} can be used"
                )
            bad, good = [*bad, *good], []
        if self.strict and bad:
            raise ValueError(
                f"evaluate: sample {bad[0].sample} cannot be used: {bad[0].error}; strict=False records it as a row"
            )
        return Started(seed, group, self._predictions(good, clock) if good else {}, clock)

    def finish(self, started: Started) -> list[Row]:
        """Return the rows of a group that was started. Waits for an accelerator once."""
        rows = {
            item.sample: error_row(started.seed, item.sample, item.truth, item.error, item.path)
            for item in started.group
        }
        good = [item for item in started.group if not item.error]
        results = _on_cpu(started.found)
        seconds = {name: value / len(good) for name, value in started.clock.seconds().items()} if good else {}
        shared = seconds.pop("views", 0.0)
        for i, item in enumerate(good):
            said = {name: each[i] for name, each in results.items()}
            took = {"views": item.seconds + shared, **seconds}
            rows[item.sample] = result_row(started.seed, item.sample, item.truth, said, took, item.path)
        return list(rows.values())

    @property
    def _specs(self) -> list[ImageSpec]:
        """The preprocessing of the model, and of each reward model."""
        return [model.image_spec for model in (self.model, *(model for model, _ in rewards_of(self.cases)))]

    def _predictions(self, items: list[Item], clock: Clock) -> dict[str, Prediction]:
        """Return the predictions of each method."""
        encoded = any(case.needs_features for case in self.cases)
        if encoded:
            clock.mark("features")
        views = [item.views.to(self.device) for item in items]
        features = [
            encode_views(self.model, made) if item.features is None else item.features.to(self.device)
            for item, made in zip(items, views, strict=True)
            if encoded
        ]
        judged: list[list[Tensor]] = [[] for _ in items]
        if rewards := rewards_of(self.cases):
            clock.mark("reward")
            judged = [self._judged(rewards, item) for item in items]
        found: dict[str, Prediction] = {}
        for case in self.cases:
            clock.mark(case.name)
            found[case.name] = case.predict(self.model, features, views, judged)
        clock.mark("")
        return found

    def _judged(self, rewards: Sequence[RewardModel], item: Item) -> list[Tensor]:
        """Return the cosines of an item's views to the classes under each reward model."""
        if item.features is not None:
            return feature_similarities(rewards, item.reward_features, [self.device] * len(rewards))
        return similarities(rewards, [each.to(self.device) for each in item.reward_views])


def needed_views(cases: Sequence[Case], views: ViewSettings) -> ViewSettings:
    """Return the settings of the views that methods use: only the plain image if all of them take batches of images."""
    return replace(views, n_views=1) if all(case.needs_batches for case in cases) else views


def _on_cpu(found: dict[str, Prediction]) -> dict[str, list[MethodResult]]:
    """Return each method's result per sample. All logits come from the device in one copy."""
    parts = [each.logits for said in found.values() for each in (said, said.before) if each is not None]
    logits = iter(torch.stack(parts).cpu() if parts else ())
    return {
        name: method_results(next(logits), None if said.before is None else next(logits))
        for name, said in found.items()
    }
