"""Refuse options that would have no effect on what was asked, before anything is loaded."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Collection
from pathlib import Path

__all__ = ["check_dataset_options", "check_image_options", "check_problem_options", "refuse"]

CLASSES = ("classes", "classes_file")
SETTINGS = ("num_workers", "backend", "order", "streams", "preset", "reward")
VIEWS_AND_PROMPTS = ("n_views", "recipe", *CLASSES, "template", "prompt", *SETTINGS)


def refuse(args: Namespace, names: Collection[str], why: str) -> None:
    """Raise a ValueError if any of these options was given.

    Args:
        args: the parsed options; None or False is one that was not given.
        names: the options' names in ``args``.
        why: why they would have no effect, and what to do.
    """
    given = [name for name in names if (value := getattr(args, name, None)) is not None and value is not False]
    if given:
        raise ValueError(f"{', '.join('--' + name.replace('_', '-') for name in given)}: {why}")


def check_dataset_options(args: Namespace, embedded: Collection[str], known: Collection[str]) -> None:
    """Refuse options that the dataset would ignore: an embedded one, a folder, or one of the paper."""
    if args.dataset in embedded:
        why = f"no effect on {args.dataset}, which is embedded with its classes and one split; leave it out"
        refuse(args, ("root", "split", "subset", *CLASSES), why)
    elif args.dataset.lower().replace("_", "-") not in known:
        refuse(args, ("split",), "a folder or file has no splits; pass the folder or file of the split as --dataset")
        given = Path(args.dataset).expanduser()
        if given.is_absolute() and not given.is_file():
            refuse(args, ("root",), f"no effect on the absolute path {args.dataset}; leave it out")


def check_problem_options(args: Namespace) -> None:
    """Refuse options that Bongard problems would ignore."""
    refuse(args, VIEWS_AND_PROMPTS, "not for Bongard problems, which have no views, no class names and no stream")


def check_image_options(args: Namespace) -> None:
    """Refuse options of datasets next to images."""
    if args.dataset is not None:
        raise ValueError("compare takes images or --dataset, not both")
    refuse(
        args,
        ("root", "split", "subset", "limit"),
        "for --dataset; images on the command line are all used; leave it out",
    )
