"""Write the files of a feature store, and find those that are missing or damaged."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TypedDict

import torch
from torch import Tensor

from tpt_lib.evaluation.run_schema import is_final
from tpt_lib.features.store_index import COLUMNS, Index, missing_shards, shard_count, shard_path, shard_samples
from tpt_lib.features.whole_file import (
    DamagedFileError,
    check_tensors,
    join_texts,
    map_tensors,
    text_at,
    write_tensors,
)

__all__ = ["Encoded", "complete", "is_whole", "tasks", "write_shard"]


class Encoded(TypedDict):
    """The features ``(N, E)`` of a sample, or its error; its label, -1 if not known; and its path, or None."""

    sample: int
    label: int
    path: str | None
    error: str
    features: Tensor | None


def tasks(
    out: Path, index: Index, model: str, seeds: Sequence[int], rank: int = 0, ranks: int = 1
) -> list[tuple[int, int]]:
    """Return the files that a rank has to write, as pairs (seed, number of the file).

    These are files that are missing or damaged, or have temporary errors. The share of a rank does not depend on the progress
    of the others.
    """
    every = [(seed, shard) for seed in seeds for shard in range(shard_count(index))]
    return [(seed, shard) for seed, shard in every[rank::ranks] if not is_whole(shard_path(out, model, seed, shard))]


def write_shard(out: Path, index: Index, model: str, seed: int, shard: int, samples: Sequence[Encoded]) -> None:
    """Write the features of the samples of one file."""
    entry = index["models"][model]
    dtype: torch.dtype = getattr(torch, entry["dtype"])
    empty = torch.zeros(index["views"]["n_views"], entry["width"], dtype=dtype)
    features = torch.stack([empty if one["features"] is None else one["features"] for one in samples])
    errors = {row: one["error"] for row, one in enumerate(samples) if one["error"]}
    text, ends = join_texts([one["path"] or "" for one in samples])
    labels = torch.tensor([one["label"] for one in samples], dtype=torch.int32)
    path = shard_path(out, model, seed, shard)
    path.parent.mkdir(parents=True, exist_ok=True)
    tensors = {"features": features.to(dtype), "labels": labels, "paths": text, "path_ends": ends}
    write_tensors(path, tensors, {"errors": json.dumps(errors)})


def complete(out: Path, index: Index, model: str, seed: int) -> None:
    """Write the labels and paths of all samples to one file, once all files of the model and seed exist."""
    if _has_checksum(out / COLUMNS) or missing_shards(out, index, model, seed):
        return
    labels, paths = [], []
    for shard in range(shard_count(index)):
        tensors, _ = map_tensors(shard_path(out, model, seed, shard))
        labels.append(tensors["labels"])
        own = len(shard_samples(index, shard))
        paths += [text_at(tensors["paths"], tensors["path_ends"], i) for i in range(own)]
    text, ends = join_texts(paths)
    write_tensors(out / COLUMNS, {"labels": torch.cat(labels), "paths": text, "path_ends": ends}, {})


def is_whole(file: Path) -> bool:
    """Return whether a file matches its checksum and has no temporary errors."""
    return _has_checksum(file) and all(
        is_final({"error": error})  # type: ignore[typeddict-item]
        for error in json.loads(map_tensors(file)[1]["errors"]).values()
    )


def _has_checksum(file: Path) -> bool:
    try:
        check_tensors(file)
    except (DamagedFileError, FileNotFoundError):
        return False
    return True
