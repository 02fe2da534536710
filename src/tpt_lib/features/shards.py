"""Read the files of a feature store: the features of one model for the views of one seed, by memory map."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from tpt_lib.features.store_index import Index, shard_path, shard_samples
from tpt_lib.features.whole_file import DamagedFileError, check_tensors, map_tensors

KEPT_OPEN = 512  # files


class Shard(NamedTuple):
    """The features of some samples ``(B, N, E)``, and the errors of those that have none, by their row."""

    features: Tensor
    errors: dict[int, str]


@dataclass(frozen=True, eq=False)
class Shards:
    """The files of one model and one seed. Samples are numbered as in the whole dataset."""

    folder: Path
    index: Index
    model: str
    seed: int
    opened: dict[int, Shard] = field(default_factory=dict, init=False)

    def shard(self, number: int) -> Shard:
        """Return one file, mapped: only what is used of it is read."""
        if number not in self.opened:
            if len(self.opened) >= KEPT_OPEN:
                self.opened.clear()
            try:
                tensors, notes = map_tensors(shard_path(self.folder, self.model, self.seed, number), "features")
            except DamagedFileError as error:
                samples = shard_samples(self.index, number)
                raise DamagedFileError(
                    f"{error}. It has samples {samples[0]} to {samples[-1]}; encode_dataset with the same settings repairs it"
                ) from error
            errors = {int(row): error for row, error in json.loads(notes["errors"]).items()}
            self.opened[number] = Shard(tensors["features"], errors)
        return self.opened[number]

    def error_of(self, sample: int) -> str:
        """Return why a sample has no features; empty if it has."""
        number, row = divmod(sample, self.index["shard_size"])
        return self.shard(number).errors.get(row, "")

    def read(self, samples: Sequence[int], n_views: int) -> Float[Tensor, "b n e"]:
        """Return the features of samples as float32, the first views of each."""
        found = torch.empty(len(samples), n_views, self.index["models"][self.model]["width"])
        size = self.index["shard_size"]
        for first, end in _neighbors(samples, size):
            number, row = divmod(samples[first], size)
            shard, rows = self.shard(number), slice(row, row + end - first)
            if shard.errors:
                _check_rows(shard, number * size, rows)
            found[first:end] = shard.features[rows, :n_views]
            if rows.stop == len(shard.features):  # read in order, it is not needed again, and mapped pages cost time
                self.opened.pop(number, None)
        return found

    def damage(self, numbers: Iterable[int]) -> list[str]:
        """Read files and compare their checksums; return what is damaged, and the samples in it."""
        found = []
        for number in numbers:
            samples = shard_samples(self.index, number)
            try:
                check_tensors(shard_path(self.folder, self.model, self.seed, number))
            except (DamagedFileError, FileNotFoundError) as error:
                found.append(f"samples {samples[0]} to {samples[-1]}: {error}")
        return found


def _neighbors(samples: Sequence[int], size: int) -> Iterator[tuple[int, int]]:
    """Yield the ends of each run of samples that follow each other in one file of ``size``."""
    first = 0
    for end in range(1, len(samples) + 1):
        if end == len(samples) or samples[end] != samples[end - 1] + 1 or samples[end] % size == 0:
            yield first, end
            first = end


def _check_rows(shard: Shard, start: int, rows: slice) -> None:
    """Refuse rows without features, of a file whose first sample is ``start``."""
    for row in range(rows.start, rows.stop):
        if row in shard.errors:
            raise ValueError(
                f"FeatureStore: sample {start + row} of the dataset has no features: {shard.errors[row]}. Leave it out with "
                "store.select([i for i in range(len(store)) if i not in store.errors])"
            )
