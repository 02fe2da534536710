"""Fill a feature store: agree on its index, check the disk, and write its files."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any, TypedDict

import torch
from torch import Tensor

from tpt_lib.evaluation.data.data_identity import differing_data
from tpt_lib.evaluation.run_checks import short
from tpt_lib.evaluation.run_lock import RunLock
from tpt_lib.evaluation.run_schema import is_final
from tpt_lib.features.store import FeatureStore
from tpt_lib.features.store_index import (
    COLUMNS,
    INDEX,
    Index,
    differing_model,
    missing_shards,
    read_index,
    shard_count,
    shard_path,
    shard_samples,
)
from tpt_lib.features.whole_file import (
    DamagedFileError,
    check_tensors,
    join_texts,
    map_tensors,
    remove_parts,
    text_at,
    write_tensors,
    write_whole,
)
from tpt_lib.types import PathLike

PATIENCE = 60.0  # seconds that a process waits for another one that writes the index


class Encoded(TypedDict):
    """The features ``(N, E)`` of a sample, or an error; its label, -1 if it is not known, and its path, or None."""

    sample: int
    label: int
    path: str | None
    error: str
    features: Tensor | None


def agree_on_index(out: Path, wanted: Index) -> Index:
    """Return the index of the store at ``out``, with the model and the seeds of ``wanted`` added; write it if it is new.

    Raises:
        ValueError: if there is a store of another dataset, other views or another model of that name, or the folder has
            other files. Nothing is changed then.
    """
    if out.exists() and not out.is_dir():
        raise ValueError(f"encode_dataset: {str(out)!r} is a file; pass the folder of a store, or a new one")
    if out.is_dir() and not (out / INDEX).exists() and (other := [f for f in out.iterdir() if not _is_lock(f)]):
        raise ValueError(
            f"encode_dataset: {str(out)!r} is no feature store, and it has other files, as {other[0].name!r}; pass a new folder"
        )
    if not (out / INDEX).exists():
        _check_space(out, wanted, _left(out, wanted))
    out.mkdir(parents=True, exist_ok=True)
    remove_parts(out)
    with _locked(out / INDEX):
        if not (out / INDEX).exists():
            _write_index(out, wanted)
            return wanted
        known = read_index("encode_dataset", out)
        joined = _joined(out, known, wanted)
        _check_space(out, joined, _left(out, joined))
        if joined != known:
            _write_index(out, joined)
        return joined


def tasks(
    out: Path, index: Index, model: str, seeds: Sequence[int], rank: int = 0, ranks: int = 1
) -> list[tuple[int, int]]:
    """Return what is to be done by a rank, as pairs (seed, number of a file): files that are missing, damaged, or have
    errors that may pass. Its share does not depend on what the others have done."""
    every = [(seed, shard) for seed in seeds for shard in range(shard_count(index))]
    return [(seed, shard) for seed, shard in every[rank::ranks] if not _is_whole(shard_path(out, model, seed, shard))]


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
    """Write the labels and paths of all samples to one file, unless it is there, or a file of the model and seed is not."""
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


def merge_stores(out: PathLike, parts: Sequence[PathLike]) -> FeatureStore:
    """Copy the files of stores of the same dataset, views and models into one.

    Args:
        out: the folder of the store that gets them; it may be a new one.
        parts: folders of stores, complete or not, as several machines filled them.

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
        index = _joined(part, index, other)
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
        if shard not in absent and _is_whole(file):
            target = shard_path(out, model, seed, shard)
            target.parent.mkdir(parents=True, exist_ok=True)
            write_whole(target, file.read_bytes())


def describe_store(path: Path) -> dict[str, Any]:
    """Return what is in a store, complete or not, in types that JSON has."""
    index = read_index("tpt-lib store", path)
    data, models = index["dataset"], []
    for name, entry in index["models"].items():
        for seed in entry["seeds"]:
            folder = shard_path(path, name, seed, 0).parent
            size = sum(file.stat().st_size for file in folder.iterdir()) if folder.is_dir() else 0
            missing, files = len(missing_shards(path, index, name, seed)), shard_count(index)
            known = {"name": name, "seed": seed, "model": entry["identity"]["model"], "width": entry["width"]}
            models.append({**known, "dtype": entry["dtype"], "bytes": size, "files": files, "missing": missing})
    counts = {"samples": data["n"], "classes": len(data["classes"])}
    return {
        "store": str(path),
        "dataset": f"{data['name']}/{data['split']}",
        **counts,
        "views": index["views"],
        "models": models,
    }


def stored_bytes(index: Index, shards: int) -> int:
    """Return how many bytes of features a number of files have, for the widest of the models."""
    size = max(entry["width"] * (2 if entry["dtype"] == "float16" else 4) for entry in index["models"].values())
    return min(shards * index["shard_size"], shards * index["dataset"]["n"]) * index["views"]["n_views"] * size


def shown_bytes(number: int | float) -> str:
    """Return a number of bytes for people, as '3.3 GB'."""
    for unit in ("bytes", "kB", "MB", "GB"):
        if number < 1000:
            return f"{number:.3g} {unit}"
        number /= 1000
    return f"{number:.3g} TB"


def _left(out: Path, index: Index) -> int:
    return sum(
        len(missing_shards(out, index, name, seed))
        for name, entry in index["models"].items()
        for seed in entry["seeds"]
    )


def _check_space(out: Path, index: Index, shards: int) -> None:
    folder = next(path for path in (out, *out.absolute().parents) if path.is_dir())
    wanted, free = stored_bytes(index, shards), shutil.disk_usage(folder).free
    if wanted > free:
        raise OSError(
            f"encode_dataset: the features need {shown_bytes(wanted)}, but the disk of {str(out)!r} has {shown_bytes(free)}; "
            "make room, pass another folder, fewer views or seeds, or dtype='float16'"
        )


def _joined(out: Path, known: Index, wanted: Index) -> Index:
    """Return an index with the models and seeds of both; refuse one of another dataset, other views or other models."""
    data, here = known["dataset"], wanted["dataset"]
    found: dict[str, tuple[Any, Any]] = {
        key: (data[key], here[key]) for key in ("name", "split", "classes", "template", "n") if data[key] != here[key]
    }
    found |= {f"data.{k}": pair for k, pair in differing_data(data["identity"], here["identity"]).items()}
    found |= {
        f"views.{k}": (known["views"].get(k), v) for k, v in wanted["views"].items() if known["views"].get(k) != v
    }
    if known["shard_size"] != wanted["shard_size"]:
        found["shard_size"] = known["shard_size"], wanted["shard_size"]
    models = dict(known["models"])
    for name, entry in wanted["models"].items():
        before = models.get(name)
        if before is None:
            models[name] = entry
            continue
        found |= {f"{name}.{k}": p for k, p in differing_model(before["identity"], entry["identity"]).items()}
        found |= {f"{name}.{k}": (before[k], entry[k]) for k in ("width", "dtype") if before[k] != entry[k]}
        seeds = [*before["seeds"], *(seed for seed in entry["seeds"] if seed not in before["seeds"])]
        models[name] = {**before, "seeds": seeds}
    if found:
        said = [f"{key} is {short(repr(a))} there and {short(repr(b))} here" for key, (a, b) in found.items()]
        raise ValueError(
            f"encode_dataset: {str(out)!r} has a store that differs ({'; '.join(said)}). Pass another folder; a second model "
            "needs a name of its own, as name='reward'"
        )
    return {**known, "models": models}


def _write_index(out: Path, index: Index) -> None:
    write_whole(out / INDEX, (json.dumps({**index, "version": version("tpt_lib")}, indent=1) + "\n").encode())


def _is_whole(file: Path) -> bool:
    """Return whether a file has its checksum and no error that may pass."""
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


def _is_lock(file: Path) -> bool:
    return file.name.startswith(INDEX)


@contextmanager
def _locked(file: Path) -> Iterator[None]:
    """Hold the lock of the index; wait for another process that has it."""
    end = time.monotonic() + PATIENCE
    while True:
        try:
            lock = RunLock(file)
            break
        except BlockingIOError:
            if time.monotonic() > end:
                raise
            time.sleep(0.05)
    try:
        yield
    finally:
        lock.release()
