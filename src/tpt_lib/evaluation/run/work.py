"""Turn samples into rows of a run, in this process or another."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from tpt_lib.evaluation.data.samples import class_index, listed_file, shown_path
from tpt_lib.evaluation.run_file import MethodResult, Row, error_row, method_result, result_row
from tpt_lib.features.encode import encode_views
from tpt_lib.methods.cases import Case, rewards_of
from tpt_lib.methods.reward import reward_views, similarities
from tpt_lib.models.protocol import ClipLike, ImageSpec
from tpt_lib.prediction import Prediction
from tpt_lib.prompts.class_prompts import ClassPrompts
from tpt_lib.views.augment import augment_views
from tpt_lib.views.settings import ViewSettings


@dataclass
class Item:
    """The views of a sample, also for reward models if there are any, or the error that prevented them."""

    sample: int
    path: str | None = None
    truth: int | None = None
    views: Tensor = field(default_factory=lambda: torch.empty(0))
    reward_views: list[Tensor] = field(default_factory=list)
    error: str = ""
    seconds: float = 0.0


@dataclass(frozen=True)
class Work:
    """Turn samples into rows. It can be pickled if its model, methods and samples can; caches are left behind."""

    model: ClipLike
    cases: Sequence[Case]
    samples: Any
    views: ViewSettings
    strict: bool
    root: str | None = None

    def __call__(self, seed: int, samples: list[int]) -> list[Row]:
        """Return the rows of samples, computed in this process."""
        return self.rows(seed, list(self.items(seed, samples, 0)))

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
        """Yield the views of samples, made by ``num_workers`` processes with one thread each."""
        specs = [model.image_spec for model in (self.model, *(model for model, _ in rewards_of(self.cases)))]
        views = replace(self.views, seed=seed)
        data = _Items(self.samples, samples, specs, views, self.root, len(self.prompts.names))
        own = torch.Generator()  # without it the loader draws from the global generator
        return iter(DataLoader(data, batch_size=None, num_workers=num_workers if samples else 0, generator=own))

    def rows(self, seed: int, group: list[Item]) -> list[Row]:
        """Return the rows of a group of samples."""
        if self.strict and (bad := next((item for item in group if item.error), None)):
            raise ValueError(
                f"evaluate: sample {bad.sample} cannot be used: {bad.error}; strict=False records it as a row"
            )
        rows = {item.sample: error_row(seed, item.sample, item.truth, item.error, item.path) for item in group}
        if good := [item for item in group if not item.error]:
            results, seconds = self._results(good)
            for i, item in enumerate(good):
                said = {name: _result(batch[i]) for name, batch in results.items()}
                took = {"views": item.seconds, **seconds}
                rows[item.sample] = result_row(seed, item.sample, item.truth, said, took, item.path)
        return list(rows.values())

    def _results(self, items: list[Item]) -> tuple[dict[str, Prediction], dict[str, float]]:
        """Return the predictions of each method, and the seconds per image of encoding and of each method."""
        start = time.perf_counter()
        views = [item.views.to(self.device) for item in items]
        features = [encode_views(self.model, each) for each in views]
        seconds = {"features": (time.perf_counter() - start) / len(items)}
        judged: list[list[Tensor]] = [[] for _ in items]
        if rewards := rewards_of(self.cases):
            start = time.perf_counter()
            judged = [similarities(rewards, [each.to(self.device) for each in item.reward_views]) for item in items]
            seconds["reward"] = (time.perf_counter() - start) / len(items)
        found: dict[str, Prediction] = {}
        for case in self.cases:
            start = time.perf_counter()
            found[case.name] = case.predict(self.model, features, views, judged)
            seconds[case.name] = (time.perf_counter() - start) / len(items)
        return found, seconds


class _Items(Dataset[Item]):
    def __init__(
        self,
        samples: Any,
        chosen: list[int],
        specs: list[ImageSpec],
        views: ViewSettings,
        root: str | None,
        classes: int,
    ) -> None:
        self.samples, self.chosen, self.specs, self.views = samples, chosen, specs, views
        self.root, self.classes = root, classes

    def __len__(self) -> int:
        return len(self.chosen)

    def __getitem__(self, at: int) -> Item:
        item = Item(self.chosen[at])
        start = time.perf_counter()
        try:
            item.path = shown_path(listed_file(self.samples, item.sample), self.root)
            image, label = self.samples[item.sample]
            item.path = shown_path(image, self.root) or item.path
            item.truth = class_index(label, self.classes)
            item.views = augment_views(image, self.specs[0], **vars(self.views))
            item.reward_views = reward_views(self.specs[1:], image, item.views, self.specs[0], self.views)
        except Exception as error:  # a dataset may raise anything for a bad image; it becomes that sample's error
            item.error = f"{type(error).__name__}: {error}"
        item.seconds = time.perf_counter() - start
        return item


def _result(said: Prediction) -> MethodResult:
    return method_result(said.logits, None if said.before is None else said.before.logits)
