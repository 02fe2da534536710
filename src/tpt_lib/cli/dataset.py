"""Load the dataset of ``--dataset``: embedded, with a name, from a folder or file, or a store."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path
from typing import Any

import tpt_lib as tpt
from tpt_lib.cli.loading import classes_of
from tpt_lib.cli.options import refuse
from tpt_lib.evaluation.data.bongard_hoi import Problem
from tpt_lib.evaluation.data.registry import EMBEDDED, ENTRIES, STYLES
from tpt_lib.evaluation.data.subsets import take_evenly

__all__ = ["dataset_of", "has_name", "has_problems", "load_embedded"]


def dataset_of(args: Namespace) -> Any:
    """Return the dataset of ``--dataset`` or the store of one, with ``--limit`` samples."""
    if args.dataset is None:
        raise ValueError(
            "--dataset is missing: pass a name from 'tpt-lib datasets', or a folder with one subfolder per class"
        )
    _refuse_ignored(args)
    if _is_store(args.dataset):
        data: Any = tpt.FeatureStore.open(args.dataset)
    elif args.dataset in EMBEDDED:
        data = load_embedded(args.dataset)
    else:
        split = args.split or "test"
        data = tpt.load_dataset(args.dataset, args.root, split=split, classes=classes_of(args), subset=args.subset)
    if args.limit is None:
        return data
    if args.limit < 1:
        raise ValueError(f"--limit must be at least 1, but is {args.limit}")
    return take_evenly(data, args.limit)


def load_embedded(name: str) -> tpt.EvalSet:
    """Load one of ``EMBEDDED``."""
    return tpt.load_tiny_drawings(name) if name in STYLES else tpt.load_tiny_bongard()


def has_name(dataset: str) -> bool:
    """Return whether ``--dataset`` is a name from ``tpt-lib datasets``, not a path."""
    return dataset in EMBEDDED or dataset.lower().replace("_", "-") in ENTRIES


def has_problems(data: Any) -> bool:
    """Return whether a dataset has Bongard problems instead of images with classes."""
    return not isinstance(data, tpt.FeatureStore) and isinstance(data.samples[0], Problem)


def _is_store(path: str) -> bool:
    return Path(path, "index.json").is_file()


def _refuse_ignored(args: Namespace) -> None:
    """Refuse options that the dataset would ignore."""
    if _is_store(args.dataset):
        refuse(args, ("root", "split", "subset"), "for datasets, not for stores; leave it out")
    elif args.dataset in EMBEDDED:
        why = f"no effect on {args.dataset}, which is embedded with its classes and one split; leave it out"
        refuse(args, ("root", "split", "subset", "classes", "classes_file"), why)
    elif not has_name(args.dataset):
        refuse(args, ("split",), "a folder or file has no splits; pass the folder or file of the split as --dataset")
        given = Path(args.dataset).expanduser()
        if given.is_absolute() and not given.is_file():
            refuse(args, ("root",), f"no effect on the absolute path {args.dataset}; leave it out")
