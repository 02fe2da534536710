"""Run the commands of feature stores: fill one, look at it, check it, join several."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path
from typing import Any

import tpt_lib as tpt
from tpt_lib.evaluation import merge_stores
from tpt_lib.evaluation.run.fill_store import describe_store, shown_bytes

__all__ = ["is_store", "merge", "show", "verify"]


def is_store(path: str | None) -> bool:
    """Return whether a path is the folder of a store."""
    return path is not None and Path(path, "index.json").is_file()


def show(args: Namespace) -> dict[str, Any]:
    """Return what is in a store, complete or not."""
    return describe_store(Path(args.stores[0]))


def verify(args: Namespace) -> dict[str, Any]:
    """Return what is damaged in a store, for every model and seed."""
    store = tpt.FeatureStore.open(args.stores[0])
    every = [store.of_model(name).seed(seed) for name in store.models for seed in store.of_model(name).seeds]
    damaged = {f"{one.model}, seed {one.view_seed}": one.verify() for one in every}
    return {"store": str(store.path), "damaged": {name: found for name, found in damaged.items() if found}}


def merge(args: Namespace) -> dict[str, Any]:
    """Join stores into a new one and return what is in it."""
    merge_stores(args.out, args.stores)
    return describe_store(Path(args.out))


def as_text(found: dict[str, Any]) -> str:
    """Return what a command found, for people."""
    if "damaged" in found:
        lines = [f"  {name}: {one}" for name, several in found["damaged"].items() for one in several]
        remedy = ["tpt-lib encode with the same options mends them"] if lines else []
        return "\n".join([f"{found['store']}: {len(lines) or 'no'} damaged files", *lines, *remedy])
    lines = [f"{found['store']}: {found['samples']} samples of {found['classes']} classes of {found['dataset']}"]
    lines += [f"  views: {', '.join(f'{name} {value}' for name, value in found['views'].items())}"]
    for one in found["models"]:
        what = f"{one['model']} x {one['width']}, {one['dtype']}"
        state = "complete" if not one["missing"] else f"{one['missing']} of {one['files']} files missing"
        lines.append(f"  {one['name']}, seed {one['seed']}: {what}, {shown_bytes(one['bytes'])}, {state}")
    return "\n".join(lines)
