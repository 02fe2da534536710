"""Merge feature stores of the same dataset that several machines filled."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tpt_lib.evaluation.run.agree_on_index import agree_on_index, joined_index
from tpt_lib.evaluation.run.fill_store import complete, is_whole
from tpt_lib.features.store import FeatureStore
from tpt_lib.features.store_index import Index, missing_shards, read_index, shard_path
from tpt_lib.features.whole_file import write_whole
from tpt_lib.types import PathLike

__all__ = ["merge_stores"]


def merge_stores(out: PathLike, parts: Sequence[PathLike]) -> FeatureStore:
    """Copy the files of stores of the same dataset, views and models into one.

    Args:
        out: folder of the merged store, new or existing.
        parts: folders of stores, complete or not, such as several machines fill.

    Returns:
        The store, complete.

    Raises:
        ValueError: if the stores differ, or files are still missing.

    >>> data = tpt_lib.EvalSet("noise", [(torch.rand(3, 40, 60), 0), (torch.rand(3, 40, 60), 1)], ("cat", "dog"))
    >>> store = tpt_lib.encode_dataset(model, data, f"{folder}/first", n_views=4)
    >>> len(merge_stores(f"{folder}/both", [store.path]))
    2
    """
    if not parts:
        raise ValueError("merge_stores: there is nothing to merge; pass the folders of stores")
    folder, folders = Path(out), [Path(part) for part in parts]
    indices = [read_index("merge_stores", part) for part in folders]
    index = indices[0]
    for part, other in zip(folders, indices, strict=True):
        index = joined_index(part, index, other)
    index = agree_on_index(folder, index)
    for part, own in zip(folders, indices, strict=True):
        for name, entry in own["models"].items():
            for seed in entry["seeds"]:
                _copy_shards(part, folder, index, name, seed)
    name, entry = next(iter(index["models"].items()))
    complete(folder, index, name, entry["seeds"][0])
    return FeatureStore.open(folder)


def _copy_shards(source: Path, out: Path, index: Index, model: str, seed: int) -> None:
    absent = {*missing_shards(source, index, model, seed)}
    for shard in missing_shards(out, index, model, seed):
        file = shard_path(source, model, seed, shard)
        if shard not in absent and is_whole(file):
            target = shard_path(out, model, seed, shard)
            target.parent.mkdir(parents=True, exist_ok=True)
            write_whole(target, file.read_bytes())
