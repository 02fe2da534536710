"""The index of a feature store: what its features were made of, and where they are.

A store is a folder::

    index.json                      what this module describes
    columns.safetensors             labels and paths of all samples; there once a model's first seed is complete
    model/seed0/000000.safetensors  features of 64 samples (B, N, E), their labels and paths, and errors
    model/seed0/000001.safetensors

The dataset and the views are the same for all of it. Seeds and models can be added, also by several processes at a time.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, TypedDict

from tpt_lib.text_files import read_json

__all__ = ["COLUMNS", "FORMAT", "INDEX", "DatasetEntry", "Index", "ModelEntry", "read_index", "shard_path"]

FORMAT = 1
INDEX, COLUMNS = "index.json", "columns.safetensors"
StoredType = Literal["float16", "float32"]


class DatasetEntry(TypedDict):
    """What is known of the dataset: all of an ``EvalSet`` but its images, and the identity that runs know it by."""

    name: str
    split: str
    classes: list[str]
    template: str
    root: str | None
    n: int
    identity: dict[str, Any]


class ModelEntry(TypedDict):
    """A model whose features are stored, as ``models.identity.identify`` knows it."""

    seeds: list[int]
    width: int
    dtype: StoredType
    identity: dict[str, Any]


class Index(TypedDict):
    """What ``index.json`` holds."""

    kind: Literal["tpt_lib feature store"]
    format: int
    version: str
    dataset: DatasetEntry
    views: dict[str, Any]
    shard_size: int
    models: dict[str, ModelEntry]


def read_index(caller: str, path: Path) -> Index:
    """Return the index of a store.

    Args:
        caller: the function to name in errors.
        path: the folder of the store.

    Raises:
        FileNotFoundError: if there is none.
        ValueError: if it is damaged, or was written by a newer version of the library.
    """
    file = path / INDEX
    if not file.is_file():
        raise FileNotFoundError(
            f"{caller}: there is no feature store at {str(path)!r} (no {INDEX}); encode_dataset makes one"
        )
    try:
        found: Any = read_json(caller, file)
    except ValueError as error:
        raise ValueError(f"{str(error).removesuffix('. Download it again')}. Restore it from a copy") from error
    if not isinstance(found, dict) or found.get("kind") != "tpt_lib feature store":
        raise ValueError(
            f"{caller}: {str(file)!r} is not the index of a feature store: it has {json.dumps(found)[:60]}"
        )
    if found.get("format") != FORMAT:
        raise ValueError(
            f"{caller}: the store at {str(path)!r} has format {found.get('format')}, of tpt_lib {found.get('version')}; "
            f"this version reads format {FORMAT}. Upgrade tpt_lib to read it"
        )
    if missing := {*Index.__annotations__} - {*found}:
        raise ValueError(f"{caller}: {str(file)!r} lacks {', '.join(sorted(missing))}. Restore it from a copy")
    return found  # type: ignore[return-value]


def check_model_name(caller: str, name: str) -> None:
    """Refuse a name of a model that cannot be the name of a folder."""
    if not isinstance(name, str) or not re.fullmatch(r"[A-Za-z0-9][\w.-]*", name):
        raise ValueError(
            f"{caller}: the name of a model is made of letters, digits, '.', '-' and '_', but got {name!r}"
        )


def shard_path(path: Path, model: str, seed: int, shard: int) -> Path:
    """Return the file of some samples' features under a model and a seed of the views."""
    return _shard_folder(path, model, seed) / _shard_name(shard)


def _shard_folder(path: Path, model: str, seed: int) -> Path:
    return path / f"{model}/seed{seed}"


def _shard_name(shard: int) -> str:
    return f"{shard:06d}.safetensors"


def shard_count(index: Index) -> int:
    """Return the number of files per model and seed."""
    return -(-index["dataset"]["n"] // index["shard_size"])


def shard_samples(index: Index, shard: int) -> range:
    """Return the samples of a file."""
    size = index["shard_size"]
    return range(shard * size, min(index["dataset"]["n"], (shard + 1) * size))


def missing_shards(path: Path, index: Index, model: str, seed: int) -> list[int]:
    """Return the files that are not there yet, by number."""
    folder = _shard_folder(path, model, seed)
    there = {*os.listdir(folder)} if folder.is_dir() else set()
    return [i for i in range(shard_count(index)) if _shard_name(i) not in there]


def differing_model(there: Mapping[str, Any], here: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Return the parts of a model's identity that differ, without its name. A part that one side lacks is not compared."""
    keys = {*there} & {*here} - {"model"}
    return {key: (there[key], here[key]) for key in sorted(keys) if there[key] != here[key]}
