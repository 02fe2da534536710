"""Describe what is in a feature store and how large it is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tpt_lib.features.store_index import Index, missing_shards, read_index, shard_count, shard_path

__all__ = ["describe_store", "shown_bytes", "stored_bytes"]


def describe_store(path: Path) -> dict[str, Any]:
    """Return the contents of a store, complete or not, in JSON types."""
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
    """Return the number of bytes of features in a number of files, for the widest model."""
    size = max(entry["width"] * (2 if entry["dtype"] == "float16" else 4) for entry in index["models"].values())
    return min(shards * index["shard_size"], shards * index["dataset"]["n"]) * index["views"]["n_views"] * size


def shown_bytes(number: int | float) -> str:
    """Return a number of bytes in readable form, such as '3.3 GB'."""
    for unit in ("bytes", "kB", "MB", "GB"):
        if number < 1000:
            return f"{number:.3g} {unit}"
        number /= 1000
    return f"{number:.3g} TB"
