"""``tpt-lib store``: describe, check or merge feature stores."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import Any

import tpt_lib as tpt
from tpt_lib.cli.options import refuse
from tpt_lib.cli.output import show
from tpt_lib.evaluation import merge_stores
from tpt_lib.evaluation.run.describe_store import describe_store, shown_bytes

ABOUT = "Describe a store, check it for damage, or merge several"
EXAMPLES = ("info drawings", "verify drawings", "merge part1 part2 --out whole")


def add_options(command: ArgumentParser) -> None:
    """Add the options of this command."""
    command.add_argument("action", choices=["info", "verify", "merge"], help="what to do")
    command.add_argument("stores", nargs="+", metavar="STORE", help="folder of a store; merge takes several")
    command.add_argument("--out", metavar="FOLDER", help="folder of the merged store")


def run(args: Namespace) -> int:
    """Run the action; return 1 if a file is damaged."""
    if args.action == "merge" and args.out is None:
        raise ValueError("store merge needs --out, the folder of the merged store")
    if args.action != "merge":
        refuse(args, ("out",), "for merge; leave it out")
        if len(args.stores) > 1:
            raise ValueError(f"store {args.action} takes one store, but got {len(args.stores)}")
    if args.action == "verify":
        return _verify(args)
    if args.action == "merge":
        merge_stores(args.out, args.stores)
    show_store(args, args.out or args.stores[0])
    return 0


def show_store(args: Namespace, path: str) -> None:
    """Print what is in a store, complete or not."""
    found = describe_store(Path(path))
    lines = [f"{found['store']}: {found['samples']} samples of {found['classes']} classes of {found['dataset']}"]
    lines += [f"  views: {', '.join(f'{name} {value}' for name, value in found['views'].items())}"]
    for one in found["models"]:
        what = f"{one['model']} x {one['width']}, {one['dtype']}"
        state = "complete" if not one["missing"] else f"{one['missing']} of {one['files']} files missing"
        lines.append(f"  {one['name']}, seed {one['seed']}: {what}, {shown_bytes(one['bytes'])}, {state}")
    show(args, found, "\n".join(lines))


def _verify(args: Namespace) -> int:
    """Print what is damaged in a store, for every model and seed."""
    store = tpt.FeatureStore.open(args.stores[0])
    every = [store.of_model(name).seed(seed) for name in store.models for seed in store.of_model(name).seeds]
    checked = {f"{one.model}, seed {one.view_seed}": one.verify() for one in every}
    damaged: dict[str, Any] = {name: found for name, found in checked.items() if found}
    lines = [f"  {name}: {one}" for name, several in damaged.items() for one in several]
    remedy = ["tpt-lib encode with the same options repairs them"] if lines else []
    text = "\n".join([f"{store.path}: {len(lines) or 'no'} damaged files", *lines, *remedy])
    show(args, {"store": str(store.path), "damaged": damaged}, text)
    return int(bool(damaged))
