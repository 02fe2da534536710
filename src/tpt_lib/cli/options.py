"""Define the options that several commands share, and refuse options that would have no effect."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace, _ActionsContainer
from collections.abc import Collection, Sequence

__all__ = [
    "add_common",
    "add_data_and_model",
    "add_dataset",
    "add_device",
    "add_methods",
    "add_model",
    "add_prompts",
    "add_seed",
    "add_settings",
    "add_views",
    "add_work",
    "refuse",
]


def add_common(command: ArgumentParser) -> None:
    """Add the options of every command."""
    command.add_argument("--json", action="store_true", help="print JSON")
    command.add_argument("--debug", action="store_true", help="show the traceback of an error")


def add_data_and_model(command: ArgumentParser, *, methods: bool = True) -> None:
    """Add the options for a dataset, its views and a model, and for the prompts and settings of ``methods``."""
    add_dataset(command)
    if methods:
        add_prompts(command)
    add_views(command)
    if methods:
        add_settings(command)
    add_model(command)


def add_methods(command: ArgumentParser, default: Sequence[str], more: str = "") -> None:
    """Add ``--methods`` for ``methods_of``, whose help names the default and has ``more`` at its end."""
    command.add_argument(
        "--methods",
        nargs="+",
        metavar="NAME",
        help=f"names from 'tpt-lib methods', or 'all' (default: {' '.join(default)}){more}",
    )


def add_model(command: ArgumentParser) -> None:
    """Add the options for ``model_of``."""
    group = command.add_argument_group("model")
    group.add_argument(
        "--model",
        default="tiny",
        help="'tiny', the embedded model (default); an open_clip architecture; or the folder of a transformers model",
    )
    group.add_argument(
        "--pretrained", metavar="TAG|FILE", help="weights of an open_clip architecture, such as 'openai'"
    )
    add_device(group)


def add_device(command: _ActionsContainer) -> None:
    """Add ``--device``."""
    command.add_argument("--device", help="torch device, such as 'cuda:0' (default: a GPU if there is one)")


def add_prompts(command: ArgumentParser, *, required: bool = False) -> None:
    """Add the options for ``classes_of`` and ``prompts_of``; ``required`` if class names must be given."""
    group = command.add_argument_group("classes and prompts")
    either = group.add_mutually_exclusive_group(required=required)
    either.add_argument("--classes", nargs="+", metavar="NAME", help="class names")
    either.add_argument("--classes-file", metavar="FILE", help="text file with one class name per line")
    group.add_argument(
        "--template", metavar="TEXT", help="prompt with {} for the class name, such as 'a photo of a {}.'"
    )
    group.add_argument(
        "--prompt", metavar="FILE", help="checkpoint with a learned context, in the format of CoOp and CoCoOp"
    )


def add_views(command: ArgumentParser) -> None:
    """Add the options for ``views_of``."""
    group = command.add_argument_group("views")
    group.add_argument(
        "--n-views", type=int, metavar="N", help="number of views per image, including the image itself (default 64)"
    )
    group.add_argument(
        "--recipe", choices=["crop", "augmix"], help="how views are made (default: the dataset's own, or crop)"
    )


def add_seed(command: ArgumentParser) -> None:
    """Add ``--seed``, for commands with a single seed."""
    command.add_argument("--seed", type=int, default=0, help="seed of the views (default 0)")


def add_settings(command: ArgumentParser) -> None:
    """Add the options for ``settings_of`` and ``rewards_of``."""
    group = command.add_argument_group("settings of methods")
    group.add_argument(
        "--preset",
        metavar="DATASET",
        help="use the settings of the methods' authors for a dataset of the paper, such as 'imagenet-a', or "
        "'dataset' for that of --dataset (default: the methods' defaults)",
    )
    group.add_argument(
        "--reward",
        nargs="+",
        metavar="MODEL[:TAG]",
        help="second CLIP for methods that need a reward: 'tiny', an open_clip architecture with its weights such as "
        "'ViT-L-14:openai', or the folder of a transformers model; several are averaged",
    )


def add_dataset(command: ArgumentParser) -> None:
    """Add the options for ``dataset_of``."""
    group = command.add_argument_group("dataset")
    group.add_argument(
        "--dataset",
        metavar="NAME|PATH",
        help="name from 'tpt-lib datasets', a folder with one subfolder per class, a CSV, TSV or Parquet file, tar shards, "
        "or a store from 'tpt-lib encode'",
    )
    group.add_argument(
        "--root", metavar="FOLDER", help="folder that has the datasets with names, or the images of a table"
    )
    group.add_argument("--split", help="such as 'val', or 'seen_act_seen_obj' for Bongard-HOI (default test)")
    group.add_argument("--subset", action="store_true", help="accept an incomplete copy of the dataset")
    group.add_argument("--limit", type=int, metavar="N", help="use only N samples, evenly spaced over the dataset")


def add_work(command: ArgumentParser) -> None:
    """Add the options of commands that go through a whole dataset."""
    command.add_argument(
        "--seeds", type=int, nargs="+", default=[0], metavar="SEED", help="seeds of the views (default 0)"
    )
    command.add_argument(
        "--num-workers",
        type=int,
        metavar="N",
        help="number of processes that make views (default: 2 with a GPU, else 0), or of Ray actors",
    )
    command.add_argument("--backend", choices=["local", "ray"], help="where the work is done (default local)")
    command.add_argument(
        "--strict", action="store_true", help="stop at an image that cannot be used, instead of recording its error"
    )


def refuse(args: Namespace, names: Collection[str], why: str) -> None:
    """Raise a ValueError if any of these options was given.

    Args:
        args: the parsed options; None or False means that an option was not given.
        names: the options' names in ``args``.
        why: why they would have no effect, and what to do.
    """
    given = [name for name in names if (value := getattr(args, name, None)) is not None and value is not False]
    if given:
        raise ValueError(f"{', '.join('--' + name.replace('_', '-') for name in given)}: {why}")
