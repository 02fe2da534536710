"""Turn samples into rows of a run, in this process or another.

On a CPU the processes that read images also make their views. With an accelerator they only read: bytes are handed over, views
are made on the device, and results are read from it once per group, after the next group was started.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from tpt_lib.evaluation.data.samples import class_index, listed_file, shown_path
from tpt_lib.evaluation.run.clock import Clock
from tpt_lib.evaluation.run_file import MethodResult, Row, error_row, method_results, result_row
from tpt_lib.evaluation.run_lock import close_locks
from tpt_lib.features.encode import encode_views
from tpt_lib.methods.cases import Case, rewards_of
from tpt_lib.methods.reward import reward_views, similarities
from tpt_lib.models.protocol import ClipLike, ImageSpec
from tpt_lib.prediction import Prediction
from tpt_lib.prompts.class_prompts import ClassPrompts
from tpt_lib.views.augment import augment_views
from tpt_lib.views.reading import read_image
from tpt_lib.views.settings import ViewSettings


@dataclass
class Item:
    """What was read of a sample: its views, also for reward models if there are any; or its pixels; or an error."""

    sample: int
    path: str | None = None
    truth: int | None = None
    pixels: Tensor | None = None
    views: Tensor = field(default_factory=lambda: torch.empty(0))
    reward_views: list[Tensor] = field(default_factory=list)
    error: str = ""
    seconds: float = 0.0

    def pin_memory(self) -> Item:
        """Return the item with its pixels in memory from which a device copies without waiting; for the ``DataLoader``."""
        return self if self.pixels is None else replace(self, pixels=self.pixels.pin_memory())


@dataclass(frozen=True)
class Started:
    """Predictions of a group of samples, which a device may still be computing, and the times at which parts began."""

    seed: int
    group: list[Item]
    found: dict[str, Prediction]
    clock: Clock


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
        """Yield what is read of samples by ``num_workers`` processes with one thread each."""
        specs = self._specs if self.device.type == "cpu" else []
        views = replace(self.views, seed=seed)
        data = _Items(self.samples, samples, specs, views, self.root, len(self.prompts.names))
        own = torch.Generator()  # without it the loader draws from the global generator
        workers = num_workers if samples else 0
        pinned = workers > 0 and self.device.type == "cuda"
        options: Any = {"num_workers": workers, "generator": own, "pin_memory": pinned, "worker_init_fn": close_locks}
        return iter(DataLoader(data, batch_size=None, **options))

    def start(self, seed: int, group: list[Item]) -> Started:
        """Compute the predictions of a group of samples, without waiting for an accelerator."""
        clock = Clock(self.device)
        for item in group:
            if item.pixels is not None:
                _make_views(item, self._specs, replace(self.views, seed=seed), self.device)
        if self.strict and (bad := next((item for item in group if item.error), None)):
            raise ValueError(
                f"evaluate: sample {bad.sample} cannot be used: {bad.error}; strict=False records it as a row"
            )
        good = [item for item in group if not item.error]
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
        clock.mark("features")
        views = [item.views.to(self.device) for item in items]
        features = [encode_views(self.model, each) for each in views]
        judged: list[list[Tensor]] = [[] for _ in items]
        if rewards := rewards_of(self.cases):
            clock.mark("reward")
            judged = [similarities(rewards, [each.to(self.device) for each in item.reward_views]) for item in items]
        found: dict[str, Prediction] = {}
        for case in self.cases:
            clock.mark(case.name)
            found[case.name] = case.predict(self.model, features, views, judged)
        clock.mark("")
        return found


class _Items(Dataset[Item]):
    """What is read of each sample: views for ``specs``, or its pixels if there are none."""

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
            item.pixels = read_image(image)
        except Exception as error:  # a dataset may raise anything for a bad image; it becomes that sample's error
            item.error = f"{type(error).__name__}: {error}"
        if self.specs and item.pixels is not None:
            _make_views(item, self.specs, self.views, item.pixels.device)
        item.seconds = time.perf_counter() - start
        return item


def _make_views(item: Item, specs: list[ImageSpec], settings: ViewSettings, device: torch.device) -> None:
    """Replace the pixels of an item by its views on a device, or by the error that prevented them."""
    pixels: Any = item.pixels
    item.pixels = None
    try:
        item.views = augment_views(pixels, specs[0], device=device, **vars(settings))
        item.reward_views = reward_views(specs[1:], pixels, item.views, specs[0], settings)
    except Exception as error:  # a recipe may raise anything
        item.error = f"{type(error).__name__}: {error}"


def _on_cpu(found: dict[str, Prediction]) -> dict[str, list[MethodResult]]:
    """Return each method's result per sample. All logits come from the device in one copy."""
    parts = [each.logits for said in found.values() for each in (said, said.before) if each is not None]
    logits = iter(torch.stack(parts).cpu() if parts else ())
    return {
        name: method_results(next(logits), None if said.before is None else next(logits))
        for name, said in found.items()
    }
