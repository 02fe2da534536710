"""Encode the views of a dataset once, into a store from which methods run without images."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any, Literal, get_args

import torch
from torch import Tensor
from typing_extensions import Unpack

from tpt_lib.evaluation.data.data_identity import dataset_identity
from tpt_lib.evaluation.data.eval_set import EvalSet
from tpt_lib.evaluation.data.samples import listed_file, shown_path
from tpt_lib.evaluation.run.distributed import after_all_ranks, ray_rows, require_ray, share
from tpt_lib.evaluation.run.fill_store import (
    Encoded,
    agree_on_index,
    complete,
    shown_bytes,
    stored_bytes,
    tasks,
    write_shard,
)
from tpt_lib.evaluation.run.items import Item, Items, make_views, read_ahead
from tpt_lib.features.encode import device_of, encode_views
from tpt_lib.features.store import FeatureStore
from tpt_lib.features.store_index import FORMAT, INDEX, Index, StoredType, check_model_name, shard_samples
from tpt_lib.models.identity import check_known, identify
from tpt_lib.models.protocol import ClipLike
from tpt_lib.types import PathLike, UnseededViewOptions
from tpt_lib.views.settings import ViewSettings

__all__ = ["encode_dataset"]


def encode_dataset(
    model: ClipLike,
    dataset: EvalSet,
    out: PathLike,
    *,
    seeds: Sequence[int] = (0,),
    dtype: StoredType = "float16",
    keep: Sequence[Literal["features"]] = ("features",),
    name: str = "model",
    shard_size: int = 64,
    num_workers: int | None = None,
    backend: Literal["local", "ray"] = "local",
    strict: bool = False,
    progress: bool | None = None,
    **views: Unpack[UnseededViewOptions],
) -> FeatureStore:
    """Encode the views of every image of a dataset into a store on disk.

    A call that was stopped or killed is resumed by the same call. Damaged files, and samples whose errors may pass, are
    encoded again. Several processes may fill one store, such as the ranks of ``torchrun``; each takes its share of the files.

    Args:
        model: the model.
        dataset: what ``load_dataset`` returned, or ``EvalSet("mine", samples, classes)``.
        out: the folder of the store. If it has one of this dataset, missing seeds and models are added.
        seeds: seeds of the views (default ``(0,)``).
        dtype: ``"float16"`` (default), or ``"float32"`` for results that equal those from images bit for bit.
        keep: what is stored of each view (default, and so far all there is: ``("features",)``).
        name: name of the model in the store (default ``"model"``). A second model on the same views needs another one.
        shard_size: number of samples in a file (default 64), which is the most that a kill can lose.
        num_workers: number of processes that make views while the model encodes (default 2, or 0 if the model is on a CPU).
            With Ray, the number of actors, which do all of the work.
        backend: ``"local"`` (default), or ``"ray"`` for a Ray cluster.
        strict: whether to stop at an image that cannot be used (default False: record its error).
        progress: whether to show a bar, with the size of the store (default: only on a terminal).
        **views: the keywords of ``augment_views`` except ``seed``; the recipe is the dataset's by default.

    Returns:
        The store.

    Raises:
        ValueError: if ``out`` has a store of another dataset, other views or another model; it is not changed.
        OSError: if the disk has less space than the features need.

    >>> data = tpt_lib.EvalSet("noise", [(torch.rand(3, 40, 60), 0), (torch.rand(3, 40, 60), 1)], ("cat", "dog"))
    >>> store = encode_dataset(model, data, f"{folder}/store", n_views=4)
    >>> features, label = store[1]
    >>> features.shape, label
    (torch.Size([4, 256]), 1)
    """
    options: Any = {"recipe": dataset.recipe, **views}
    settings = ViewSettings.of("encode_dataset", **options)
    _check(seeds, dtype, keep, name, shard_size, num_workers, backend, views)
    folder, samples = Path(out), dataset.samples
    device = device_of(model)
    identity = identify(model)
    check_known("encode_dataset", identity, folder / INDEX)
    index = agree_on_index(folder, _index(model, dataset, identity, settings, seeds, dtype, name, shard_size))
    work = EncodeWork(model, samples, settings, dataset.root, len(dataset.classes), dtype, device, strict)
    rank, ranks = share()
    left = tasks(folder, index, name, seeds, rank, ranks)
    if num_workers is None:
        num_workers = 0 if backend == "local" and device.type == "cpu" else 2
    with _bar(index, len(left), progress) as bar:
        for (seed, shard), encoded in _encoded(work, index, left, num_workers, backend):
            write_shard(folder, index, name, seed, shard, encoded)
            bar.update(len(encoded))
    with after_all_ranks():
        if rank == 0:
            complete(folder, index, name, seeds[0])
    return FeatureStore.open(folder).of_model(name).seed(seeds[0])


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
        """Yield what is read of samples."""
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
        """Return what is stored of a sample that no process could read."""
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


def _encoded(
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


def _index(
    model: ClipLike,
    dataset: EvalSet,
    identity: dict[str, Any],
    settings: ViewSettings,
    seeds: Sequence[int],
    dtype: StoredType,
    name: str,
    shard_size: int,
) -> Index:
    height, width = model.image_spec.size
    plain = torch.zeros(1, 3, height, width, device=device_of(model))
    with torch.no_grad():
        features = model.encode_image(plain).shape[-1]
    views = {key: value for key, value in settings.to_dict().items() if key != "seed"}
    return {
        "kind": "tpt_lib feature store",
        "format": FORMAT,
        "version": "",
        "dataset": {
            "name": dataset.name,
            "split": dataset.split,
            "classes": list(dataset.classes),
            "template": dataset.template,
            "root": dataset.root,
            "n": len(dataset),
            "identity": dataset_identity(dataset),
        },
        "views": views,
        "shard_size": shard_size,
        "models": {name: {"seeds": list(seeds), "width": features, "dtype": dtype, "identity": identity}},
    }


def _bar(index: Index, left: int, progress: bool | None) -> Any:
    from tqdm import tqdm

    size = shown_bytes(stored_bytes(index, left))
    hidden = None if progress is None else not progress
    total = left * index["shard_size"]
    return tqdm(total=total, desc=f"{index['dataset']['name']}, {size}", unit="image", disable=hidden)


def _check(
    seeds: Sequence[int],
    dtype: str,
    keep: Sequence[str],
    name: str,
    shard_size: int,
    num_workers: int | None,
    backend: str,
    views: Any,
) -> None:
    if "seed" in views:
        raise TypeError("encode_dataset: pass the seeds of the views as seeds=[0, 1, …], not as seed=")
    if not seeds or len({*seeds}) < len(seeds):
        raise ValueError(f"encode_dataset: one or more seeds are needed, all different, but got {list(seeds)}")
    if dtype not in get_args(StoredType):
        raise ValueError(f"encode_dataset: dtype must be one of {', '.join(get_args(StoredType))}, but got {dtype!r}")
    if tuple(keep) != ("features",):
        raise ValueError(
            f"encode_dataset: keep must be ('features',), which is all that can be stored, but got {keep!r}"
        )
    check_model_name("encode_dataset", name)
    if not isinstance(shard_size, int) or shard_size < 1:
        raise ValueError(f"encode_dataset: shard_size must be an int of at least 1, but got {shard_size!r}")
    if num_workers is not None and num_workers < 0:
        raise ValueError(f"encode_dataset: num_workers must be 0 or more, but got {num_workers}")
    if backend not in ("local", "ray"):
        raise ValueError(f"encode_dataset: backend must be one of local, ray, but got {backend!r}")
    if backend == "ray":
        require_ray()
