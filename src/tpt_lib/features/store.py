"""Features of the views of a dataset on disk: encoded once, read by memory map."""

from __future__ import annotations

import operator
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from tpt_lib.content import digest
from tpt_lib.features.shards import Shards
from tpt_lib.features.store_index import COLUMNS, Index, ModelEntry, missing_shards, read_index
from tpt_lib.features.whole_file import DamagedFileError, check_tensors, map_tensors, text_at
from tpt_lib.html_tables import html_table
from tpt_lib.types import PathLike

__all__ = ["FeatureStore"]


@dataclass(frozen=True, eq=False, repr=False)
class FeatureStore(Dataset[tuple[Tensor, int]]):
    """Features of the views of a dataset, as ``encode_dataset`` stored them.

    It is a torch dataset of pairs (features ``(N, E)``, label), of one model and one seed of the views. Features are float32
    and of unit length, also where they are stored as float16; row 0 is the plain image. Open one with ``FeatureStore.open``.

    Attributes:
        path: its folder.
        index: what its features were made of.
        model: the name of the model whose features it gives.
        view_seed: the seed of the views whose features it gives.
        n_views: the number of views it gives of each image, the first ones of those that are stored.
        indices: the samples that were selected, or None for all.
    """

    path: Path
    index: Index
    model: str
    view_seed: int
    n_views: int
    indices: Int[Tensor, " n"] | None = None

    @classmethod
    def open(cls, path: PathLike) -> FeatureStore:
        """Open a store: its first model and seed. No features are read.

        Args:
            path: the folder that ``encode_dataset`` wrote.

        Returns:
            The store.

        Raises:
            FileNotFoundError: if there is none.
            ValueError: if it is not complete, damaged, or was written by a newer version of the library.
        """
        folder = Path(path)
        index = read_index("FeatureStore.open", folder)
        name, entry = next(iter(index["models"].items()))
        return cls(folder, index, name, entry["seeds"][0], index["views"]["n_views"])._checked()

    def _checked(self) -> FeatureStore:
        missing = missing_shards(self.path, self.index, self.model, self.view_seed)
        if missing or not (self.path / COLUMNS).is_file():
            raise ValueError(
                f"FeatureStore: {str(self.path)!r} is not complete: {len(missing)} of its files for model {self.model!r} and "
                f"seed {self.view_seed} are missing; call encode_dataset again with the same settings to finish it"
            )
        return self

    @property
    def name(self) -> str:
        """The name of the dataset."""
        return self.index["dataset"]["name"]

    @property
    def split(self) -> str:
        """The part of the dataset."""
        return self.index["dataset"]["split"]

    @property
    def classes(self) -> tuple[str, ...]:
        """The class names in the order of the labels."""
        return tuple(self.index["dataset"]["classes"])

    @property
    def template(self) -> str:
        """The template of the dataset's prompts."""
        return self.index["dataset"]["template"]

    @property
    def root(self) -> str | None:
        """The folder of the dataset, which paths are relative to."""
        return self.index["dataset"]["root"]

    @property
    def models(self) -> tuple[str, ...]:
        """The names of the models whose features are stored."""
        return tuple(self.index["models"])

    @property
    def seeds(self) -> tuple[int, ...]:
        """The seeds of the views whose features are stored for this model."""
        return tuple(self.entry["seeds"])

    @property
    def entry(self) -> ModelEntry:
        """What the index knows of this model."""
        return self.index["models"][self.model]

    def of_model(self, name: str) -> FeatureStore:
        """Return the features of another model for the same views, as one of ``models``.

        Returns:
            A store of the same files. No features are read.
        """
        if name not in self.index["models"]:
            raise ValueError(f"FeatureStore: there are features of the models {list(self.models)}, but not of {name!r}")
        seeds = self.index["models"][name]["seeds"]
        return replace(self, model=name, view_seed=self.view_seed if self.view_seed in seeds else seeds[0])._checked()

    def seed(self, seed: int) -> FeatureStore:
        """Return the features of views of another seed, one of ``seeds``.

        Returns:
            A store of the same files. No features are read.
        """
        if seed not in self.seeds:
            raise ValueError(
                f"FeatureStore: views of the seeds {list(self.seeds)} are stored, but not of {seed!r}; encode_dataset with "
                f"seeds=[{seed}] adds them"
            )
        return replace(self, view_seed=seed)._checked()

    def first_views(self, n: int) -> FeatureStore:
        """Return the first ``n`` views of each image, which are those that ``n_views=n`` would have made.

        Returns:
            A store of the same files. No features are read.
        """
        if not isinstance(n, int) or not 1 <= n <= self.n_views:
            raise ValueError(
                f"FeatureStore: {self.n_views} views of each image are stored, so n must be from 1 to that, but got {n!r}"
            )
        return replace(self, n_views=n)

    def select(self, indices: Sequence[int] | Tensor) -> FeatureStore:
        """Return only these samples, in this order.

        Args:
            indices: ints below the number of samples. A mask of bools is refused; ``mask.nonzero()[:, 0]`` has its indices.

        Returns:
            A store of the same files. No features are read.
        """
        chosen = torch.as_tensor(self._places(indices), dtype=torch.int64)
        return replace(self, indices=chosen)

    def __len__(self) -> int:
        return self.index["dataset"]["n"] if self.indices is None else len(self.indices)

    def __getitem__(self, index: int) -> tuple[Float[Tensor, "n e"], int]:
        places = self._places([index])
        return self._shards.read(places, self.n_views)[0], int(self._columns["labels"][places[0]])

    def features(self, indices: Sequence[int] | Tensor) -> Float[Tensor, "b n e"]:
        """Return the features of samples, as float32.

        Args:
            indices: ints below the number of samples.

        Returns:
            Features ``(B, N, E)`` of unit length, on the CPU.

        Raises:
            ValueError: if one of the samples could not be read when the store was made; ``errors`` has all of them.
        """
        return self._shards.read(self._places(indices), self.n_views)

    @property
    def labels(self) -> Int[Tensor, " n"]:
        """The label of each sample; -1 where it is not known because the sample could not be read."""
        labels = self._columns["labels"]
        return (labels if self.indices is None else labels[self.indices]).long()

    @cached_property
    def errors(self) -> dict[int, str]:
        """The samples without features, by index, and why. Reads the notes of every file once."""
        return {i: error for i in range(len(self)) if (error := self.error_of(i))}

    def error_of(self, index: int) -> str:
        """Return why a sample has no features; empty if it has.

        Returns:
            The message of the error, or an empty text.
        """
        return self._shards.error_of(self._places([index])[0])

    def sample_path(self, index: int) -> str | None:
        """Return the path of a sample's image, as run files have it; None if it was no file.

        Returns:
            The path, below ``root`` if the dataset has one, or None.
        """
        return text_at(self._columns["paths"], self._columns["path_ends"], self._places([index])[0]) or None

    def loader(self, *, batch_size: int = 64, shuffle: bool = False, num_workers: int = 0) -> DataLoader[Any]:
        """Return a loader of batches: features ``(B, N, E)`` and labels ``(B,)``.

        Args:
            batch_size: number of samples in a batch (default 64).
            shuffle: whether to go through the samples in a random order (default False).
            num_workers: number of processes that read (default 0).

        Returns:
            A ``torch.utils.data.DataLoader``.
        """
        return DataLoader(
            _Batches(self), batch_size=batch_size, shuffle=shuffle, num_workers=num_workers, collate_fn=_alone
        )

    def verify(self) -> list[str]:
        """Read every file that the selected samples use and compare its checksum.

        Returns:
            What is damaged: for each file the reason, and the samples in it. Empty if all is well.
        """
        size = self.index["shard_size"]
        samples = range(len(self)) if self.indices is None else self.indices.tolist()
        found = self._shards.damage(sorted({sample // size for sample in samples}))
        try:
            check_tensors(self.path / COLUMNS)
        except (DamagedFileError, FileNotFoundError) as error:
            found.append(f"labels and paths: {error}")
        return found

    @property
    def data_identity(self) -> dict[str, Any]:
        """What a run knows the selected samples by; see ``evaluation.dataset_identity``."""
        known = self.index["dataset"]["identity"]
        return (
            known
            if self.indices is None
            else {**known, "digest": digest([known["digest"], self.indices]), "images": {}}
        )

    @cached_property
    def _shards(self) -> Shards:
        return Shards(self.path, self.index, self.model, self.view_seed)

    @cached_property
    def _columns(self) -> dict[str, Tensor]:
        return map_tensors(self.path / COLUMNS)[0]

    def _places(self, indices: Sequence[int] | Tensor) -> list[int]:
        """Return indices as those of the whole dataset."""
        places = indices.tolist() if isinstance(indices, Tensor) else list(indices)
        n = len(self)
        if set(map(type, places)) != {int} or not 0 <= min(places) <= max(places) < n:
            places = [_place(index, n) for index in places]
        return places if self.indices is None else self.indices[places].tolist()

    def __iter__(self) -> Iterator[tuple[Tensor, int]]:
        return (self[i] for i in range(len(self)))

    def __getstate__(self) -> dict[str, Any]:
        return {field.name: getattr(self, field.name) for field in fields(self)}

    def __repr__(self) -> str:
        shape = f"{self.n_views} views x {self.entry['width']}, {self.entry['dtype']}"
        return f"<FeatureStore {self.name}/{self.split}: {len(self)} samples of {len(self.classes)} classes, {shape}>"

    def _repr_html_(self) -> str:
        facts = {
            "dataset": f"{self.name}/{self.split}",
            "samples": f"{len(self):,} of {len(self.classes):,} classes",
            "views": f"{self.n_views} of seed {self.view_seed}; stored seeds: {', '.join(map(str, self.seeds))}",
            "features": f"{self.entry['width']} numbers, {self.entry['dtype']}, of the model {self.model}",
            "models": ", ".join(self.models),
            "folder": str(self.path),
        }
        return html_table(["store", self.path.name], list(facts.items()))


@dataclass(frozen=True)
class _Batches(Dataset[tuple[Tensor, Tensor]]):
    """Batches of a store, read at once."""

    store: FeatureStore

    def __len__(self) -> int:
        return len(self.store)

    def __getitems__(self, indices: list[int]) -> tuple[Tensor, Tensor]:
        places = self.store._places(indices)
        return self.store._shards.read(places, self.store.n_views), self.store._columns["labels"][places].long()


def _alone(batch: Any) -> Any:
    return batch


def _place(index: Any, n: int) -> int:
    """Return an index from 0 on; negative ones count from the end, as in a list."""
    if isinstance(index, bool) or not hasattr(index, "__index__"):
        raise TypeError(
            f"FeatureStore: an index must be an int, but got {index!r}; a mask has them as mask.nonzero()[:, 0]"
        )
    place = operator.index(index)
    if not -n <= place < n:
        raise IndexError(f"FeatureStore: index {place} is out of range for {n} samples")
    return place % n
