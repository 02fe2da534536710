"""Read the samples of a dataset ahead of the model, in this process or in workers.

On a CPU the processes that read images also make their views. With an accelerator they only read: bytes are handed over, and
views are made on the device.
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
from tpt_lib.evaluation.run_lock import close_locks
from tpt_lib.features.store import FeatureStore
from tpt_lib.methods.reward import reward_views
from tpt_lib.models.protocol import ImageSpec
from tpt_lib.views.augment import augment_views
from tpt_lib.views.reading import read_image
from tpt_lib.views.settings import ViewSettings

__all__ = ["Item", "Items", "make_views", "read_ahead", "stored_items"]


READ_TOGETHER = 32  # samples of a store per read


@dataclass
class Item:
    """A sample that was read: its pixels, views or stored features, the latter two also for reward models; or an error."""

    sample: int
    path: str | None = None
    truth: int | None = None
    pixels: Tensor | None = None
    views: Tensor = field(default_factory=lambda: torch.empty(0))
    reward_views: list[Tensor] = field(default_factory=list)
    features: Tensor | None = None
    reward_features: list[Tensor] = field(default_factory=list)
    error: str = ""
    seconds: float = 0.0

    def pin_memory(self) -> Item:
        """Return the item with its pixels in pinned memory; the ``DataLoader`` calls this."""
        return self if self.pixels is None else replace(self, pixels=self.pixels.pin_memory())


class Items(Dataset[Item]):
    """A torch dataset of items, with views for each of ``specs``, or with pixels if there are none."""

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
            make_views(item, self.specs, self.views, item.pixels.device)
        item.seconds = time.perf_counter() - start
        return item


def read_ahead(items: Items, num_workers: int, device: torch.device) -> Iterator[Item]:
    """Return an iterator over items that ``num_workers`` processes with one thread each read for a model on ``device``."""
    own = torch.Generator()  # without it the loader draws from the global generator
    workers = num_workers if len(items) else 0
    pinned = workers > 0 and device.type == "cuda"
    options: Any = {"num_workers": workers, "generator": own, "pin_memory": pinned, "worker_init_fn": close_locks}
    return iter(DataLoader(items, batch_size=None, **options))


def stored_items(store: FeatureStore, rewards: Sequence[FeatureStore], samples: Sequence[int]) -> Iterator[Item]:
    """Yield the stored features of samples, of the store's own model and of reward models, read in groups."""
    labels, stores = store.labels, (store, *rewards)
    for first in range(0, len(samples), READ_TOGETHER):
        start = time.perf_counter()
        some = samples[first : first + READ_TOGETHER]
        errors = {i: error for one in stores for i in some if (error := one.error_of(i))}
        good = [i for i in some if i not in errors]
        features = iter(zip(*(one.features(good) for one in stores), strict=True))
        seconds = (time.perf_counter() - start) / len(some)
        for sample in some:
            truth = int(labels[sample])
            item = Item(sample, store.sample_path(sample), None if truth < 0 else truth, seconds=seconds)
            item.error = errors.get(sample, "")
            if not item.error:
                item.features, *item.reward_features = next(features)
            yield item


def make_views(item: Item, specs: list[ImageSpec], settings: ViewSettings, device: torch.device) -> None:
    """Replace the pixels of an item by its views on a device, or by the error that prevented them."""
    pixels: Any = item.pixels
    item.pixels = None
    try:
        item.views = augment_views(pixels, specs[0], device=device, **vars(settings))
        item.reward_views = reward_views(specs[1:], pixels, item.views, specs[0], settings)
    except Exception as error:  # a recipe may raise anything
        item.error = f"{type(error).__name__}: {error}"
