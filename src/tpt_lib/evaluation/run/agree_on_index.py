"""Make the index of a feature store, or add to the one that is on disk."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

from tpt_lib.evaluation.data.data_identity import dataset_identity, differing_data
from tpt_lib.evaluation.data.eval_set import EvalSet
from tpt_lib.evaluation.run.describe_store import shown_bytes, stored_bytes
from tpt_lib.evaluation.run_checks import short
from tpt_lib.evaluation.run_lock import RunLock
from tpt_lib.features.encode import device_of
from tpt_lib.features.store_index import (
    FORMAT,
    INDEX,
    Index,
    StoredType,
    differing_model,
    missing_shards,
    read_index,
)
from tpt_lib.features.whole_file import remove_parts, write_whole
from tpt_lib.models.protocol import ClipLike
from tpt_lib.views.settings import ViewSettings

__all__ = ["agree_on_index", "joined_index", "new_index"]

PATIENCE = 60.0  # seconds that a process waits for another one that writes the index


def new_index(
    model: ClipLike,
    dataset: EvalSet,
    identity: dict[str, Any],
    settings: ViewSettings,
    seeds: Sequence[int],
    dtype: StoredType,
    name: str,
    shard_size: int,
) -> Index:
    """Return the index of a new store with one model. Encodes a blank image to find the width of its features."""
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


def agree_on_index(out: Path, wanted: Index) -> Index:
    """Return the index of the store at ``out`` with the models and seeds of ``wanted``; write it if it has changed.

    Raises:
        ValueError: if ``out`` has a store of another dataset, other views or another model of that name, or other files.
            Nothing is changed then.
    """
    if out.exists() and not out.is_dir():
        raise ValueError(f"encode_dataset: {str(out)!r} is a file; pass the folder of a store, or a new one")
    if out.is_dir() and not (out / INDEX).exists() and (other := [f for f in out.iterdir() if not _is_lock(f)]):
        raise ValueError(
            f"encode_dataset: {str(out)!r} is not a feature store and has other files, such as {other[0].name!r}; pass a new "
            "folder"
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
        joined = joined_index(out, known, wanted)
        _check_space(out, joined, _left(out, joined))
        if joined != known:
            _write_index(out, joined)
        return joined


def joined_index(out: Path, known: Index, wanted: Index) -> Index:
    """Return an index with the models and seeds of both; refuse a different dataset, views or models of the same name."""
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
            "needs its own name, such as name='reward'"
        )
    return {**known, "models": models}


def _check_space(out: Path, index: Index, shards: int) -> None:
    folder = next(path for path in (out, *out.absolute().parents) if path.is_dir())
    wanted, free = stored_bytes(index, shards), shutil.disk_usage(folder).free
    if wanted > free:
        raise OSError(
            f"encode_dataset: the features need {shown_bytes(wanted)}, but the disk of {str(out)!r} has {shown_bytes(free)}; "
            "make room, pass another folder, fewer views or seeds, or dtype='float16'"
        )


def _left(out: Path, index: Index) -> int:
    return sum(
        len(missing_shards(out, index, name, seed))
        for name, entry in index["models"].items()
        for seed in entry["seeds"]
    )


def _write_index(out: Path, index: Index) -> None:
    write_whole(out / INDEX, (json.dumps({**index, "version": version("tpt_lib")}, indent=1) + "\n").encode())


def _is_lock(file: Path) -> bool:
    return file.name.startswith(INDEX)


@contextmanager
def _locked(file: Path) -> Iterator[None]:
    """Hold the lock of the index; wait while another process has it."""
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
