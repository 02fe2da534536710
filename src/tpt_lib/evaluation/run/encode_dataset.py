"""Encode the views of a dataset once, into a store from which methods run without images."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, get_args

from typing_extensions import Unpack

from tpt_lib.evaluation.data.eval_set import EvalSet
from tpt_lib.evaluation.run.agree_on_index import agree_on_index, new_index
from tpt_lib.evaluation.run.checks import check_seeds, check_workers
from tpt_lib.evaluation.run.describe_store import shown_bytes, stored_bytes
from tpt_lib.evaluation.run.distributed import after_all_ranks, share
from tpt_lib.evaluation.run.encode_work import EncodeWork, encoded_shards
from tpt_lib.evaluation.run.fill_store import complete, tasks, write_shard
from tpt_lib.features.encode import device_of
from tpt_lib.features.store import FeatureStore
from tpt_lib.features.store_index import INDEX, Index, StoredType, check_model_name
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

    A call that was stopped or killed is resumed by the same call. Damaged files, and samples whose errors may be temporary, are
    encoded again. Several processes may fill one store, such as the ranks of ``torchrun``; each takes its share of the files.

    Args:
        model: the model.
        dataset: what ``load_dataset`` returned, or ``EvalSet("mine", samples, classes)``.
        out: the folder of the store. If it has one of this dataset, missing seeds and models are added.
        seeds: seeds of the views (default ``(0,)``).
        dtype: ``"float16"`` (default), or ``"float32"`` for results that equal those from images bit for bit.
        keep: what to store for each view (default ``("features",)``, so far the only choice).
        name: name of the model in the store (default ``"model"``). A second model on the same views needs another one.
        shard_size: number of samples per file (default 64). A kill loses at most the work on one file.
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
    if "seed" in views:
        raise TypeError("encode_dataset: pass the seeds of the views as seeds=[0, 1, …], not as seed=")
    check_seeds("encode_dataset", seeds)
    _check_format(dtype, keep, name, shard_size)
    folder, device = Path(out), device_of(model)
    num_workers = check_workers("encode_dataset", num_workers, backend, device)
    identity = identify(model)
    check_known("encode_dataset", identity, folder / INDEX)
    index = agree_on_index(folder, new_index(model, dataset, identity, settings, seeds, dtype, name, shard_size))
    work = EncodeWork(model, dataset.samples, settings, dataset.root, len(dataset.classes), dtype, device, strict)
    rank, ranks = share()
    left = tasks(folder, index, name, seeds, rank, ranks)
    with _bar(index, len(left), progress) as bar:
        for (seed, shard), encoded in encoded_shards(work, index, left, num_workers, backend):
            write_shard(folder, index, name, seed, shard, encoded)
            bar.update(len(encoded))
    with after_all_ranks():
        if rank == 0:
            complete(folder, index, name, seeds[0])
    return FeatureStore.open(folder).of_model(name).seed(seeds[0])


def _check_format(dtype: str, keep: Sequence[str], name: str, shard_size: int) -> None:
    if dtype not in get_args(StoredType):
        raise ValueError(f"encode_dataset: dtype must be one of {', '.join(get_args(StoredType))}, but got {dtype!r}")
    if tuple(keep) != ("features",):
        raise ValueError(f"encode_dataset: keep must be ('features',), the only choice so far, but got {keep!r}")
    check_model_name("encode_dataset", name)
    if not isinstance(shard_size, int) or shard_size < 1:
        raise ValueError(f"encode_dataset: shard_size must be an int of at least 1, but got {shard_size!r}")


def _bar(index: Index, left: int, progress: bool | None) -> Any:
    from tqdm import tqdm

    size = shown_bytes(stored_bytes(index, left))
    hidden = None if progress is None else not progress
    total = left * index["shard_size"]
    return tqdm(total=total, desc=f"{index['dataset']['name']}, {size}", unit="image", disable=hidden)
