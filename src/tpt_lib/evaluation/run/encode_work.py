"""Turn samples into features for a store, in this process or on a Ray cluster."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

import torch
from torch import Tensor

from tpt_lib.evaluation.data.samples import listed_file, shown_path
from tpt_lib.evaluation.run.fill_store import Encoded
from tpt_lib.evaluation.run.items import Item, Items, make_views, read_ahead
from tpt_lib.evaluation.run.ray_cluster import ray_rows
from tpt_lib.features.encode import encode_views
from tpt_lib.features.store_index import Index, StoredType, shard_samples
from tpt_lib.models.protocol import ClipLike
from tpt_lib.views.settings import ViewSettings

__all__ = ["EncodeWork", "encoded_shards"]


@dataclass(frozen=True)
class EncodeWork:
    """Turn samples into features. It can be pickled if its model and samples can."""

    model: ClipLike
    samples: Any
    views: ViewSettings
    root: str | None
    n_classes: int
    dtype: StoredType
    device: torch.device
    strict: bool

    def __call__(self, seed: int, samples: list[int]) -> list[Encoded]:
        """Return the features of samples, computed in this process."""
        return self.encode(seed, list(self.items(seed, samples, 0)))

    def items(self, seed: int, samples: list[int], num_workers: int) -> Iterator[Item]:
        """Yield samples, read by ``num_workers`` processes."""
        specs = [self.model.image_spec] if self.device.type == "cpu" else []
        data = Items(self.samples, samples, specs, replace(self.views, seed=seed), self.root, self.n_classes)
        return read_ahead(data, num_workers, self.device)

    def encode(self, seed: int, items: list[Item]) -> list[Encoded]:
        """Return the features of items, image by image as ``evaluate`` encodes them. Waits for an accelerator once."""
        found = [self._features(seed, item) for item in items]
        whole = [each for each in found if each is not None]
        moved = iter(torch.stack(whole).to(getattr(torch, self.dtype)).cpu() if whole else ())
        return [
            self._encoded(item, None if each is None else next(moved)) for item, each in zip(items, found, strict=True)
        ]

    def failed(self, _seed: int, sample: int, error: str) -> Encoded:
        """Return the error that is stored for a sample that no process could read."""
        path = shown_path(listed_file(self.samples, sample), self.root)
        return self._encoded(Item(sample, path, error=error), None)

    def _features(self, seed: int, item: Item) -> Tensor | None:
        if item.pixels is not None:
            make_views(item, [self.model.image_spec], replace(self.views, seed=seed), self.device)
        return None if item.error else encode_views(self.model, item.views.to(self.device))

    def _encoded(self, item: Item, features: Tensor | None) -> Encoded:
        error = item.error
        if features is not None and not features.isfinite().all():
            error, features = "ValueError: the features are not all finite", None
        if error and self.strict:
            raise ValueError(
                f"encode_dataset: sample {item.sample} cannot be used: {error}; strict=False records the error and continues"
            )
        label = -1 if item.truth is None else item.truth
        return Encoded(sample=item.sample, label=label, path=item.path, error=error, features=features)


def encoded_shards(
    work: EncodeWork, index: Index, left: list[tuple[int, int]], num_workers: int, backend: str
) -> Iterator[tuple[tuple[int, int], list[Encoded]]]:
    """Yield each task with the features of its samples."""
    groups = [(seed, list(shard_samples(index, shard))) for seed, shard in left]
    if backend == "ray":
        found = ray_rows(work, groups, max(1, num_workers), work.device, work.failed)
        yield from zip(left, found, strict=True)
        return
    for seed in dict.fromkeys(seed for seed, _ in left):
        own = [(task, samples) for task, (_, samples) in zip(left, groups, strict=True) if task[0] == seed]
        items = work.items(seed, [i for _, samples in own for i in samples], num_workers)
        for task, samples in own:
            yield task, work.encode(seed, list(islice(items, len(samples))))
