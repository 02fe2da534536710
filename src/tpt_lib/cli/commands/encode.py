"""``tpt-lib encode``: encode the views of a dataset into a store."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

import tpt_lib as tpt
from tpt_lib.cli.commands.store import show_store
from tpt_lib.cli.dataset import dataset_of, has_problems
from tpt_lib.cli.loading import model_of, views_of
from tpt_lib.cli.options import add_data_and_model, add_work
from tpt_lib.cli.output import say

ABOUT = "Encode the views of a dataset into a store, from which evaluate runs without images"
EXAMPLES = (
    "--dataset noto-v1 --out drawings",
    "--dataset imagenet-a --root /data --model ViT-B-16 --pretrained openai --seeds 0 1 2 --out imagenet-a",
)


def add_options(command: ArgumentParser) -> None:
    """Add the options of this command."""
    command.add_argument(
        "--out", metavar="FOLDER", required=True, help="folder of the store; an existing one is resumed"
    )
    command.add_argument(
        "--dtype", choices=["float16", "float32"], default="float16", help="type of the features (default float16)"
    )
    command.add_argument("--name", default="model", help="name of the model in the store (default model)")
    command.set_defaults(classes=None, classes_file=None)  # a store has the classes of its dataset
    add_work(command)
    add_data_and_model(command, methods=False)


def run(args: Namespace) -> int:
    """Fill the store and print what is in it; return 1 if some image could not be used."""
    data = dataset_of(args)
    if isinstance(data, tpt.FeatureStore) or has_problems(data):
        raise ValueError(f"encode takes a dataset of images with classes, but got {data!r}")
    store = tpt.encode_dataset(
        model_of(args),
        data,
        args.out,
        seeds=args.seeds,
        dtype=args.dtype,
        name=args.name,
        strict=args.strict,
        num_workers=args.num_workers,
        backend=args.backend or "local",
        **views_of(args),
    )
    show_store(args, args.out)
    for sample, error in store.errors.items():
        say(f"sample {sample}: {error}")
    return int(bool(store.errors))
