"""``tpt-lib compare``: compare methods on some images."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from typing import Any

import tpt_lib as tpt
from tpt_lib.cli.dataset import dataset_of, has_problems
from tpt_lib.cli.loading import classes_of, methods_of, model_and_prompts_of, views_of
from tpt_lib.cli.options import add_data_and_model, add_methods, add_seed, refuse
from tpt_lib.cli.output import show
from tpt_lib.evaluation.compare import BASELINES_AND_TPT
from tpt_lib.evaluation.data.eval_set import TEMPLATE

ABOUT = "Compare accuracy, entropy, seconds and memory of methods on some images"
EXAMPLES = ("--dataset noto-v1 --limit 20 --methods all", "photo.jpg --classes cat dog --methods zero_shot tpt")


def add_options(command: ArgumentParser) -> None:
    """Add the options of this command."""
    command.add_argument("images", nargs="*", metavar="IMAGE", help="image files without labels, instead of a dataset")
    add_methods(command, BASELINES_AND_TPT)
    add_seed(command)
    add_data_and_model(command)


def run(args: Namespace) -> int:
    """Print the table of the methods, on the images or on the dataset."""
    views = views_of(args, seed=args.seed)
    images: Any = args.images
    if args.images:
        _refuse_dataset(args)
        names, template, dataset = classes_of(args), TEMPLATE, None
    else:
        data = dataset_of(args)
        if has_problems(data):
            raise ValueError("compare is for images with classes; evaluate takes Bongard problems")
        images, names, template, dataset = data, data.classes, data.template, data.name
        if not isinstance(data, tpt.FeatureStore):
            views.setdefault("recipe", data.recipe)
            images = data.samples
    model, prompts, options = model_and_prompts_of(args, names, template, dataset)
    table = tpt.compare(model, images, prompts, methods=methods_of(args, BASELINES_AND_TPT), **options, **views)
    show(args, table.to_dict(), table)
    return 0


def _refuse_dataset(args: Namespace) -> None:
    """Refuse the options of datasets next to images."""
    if args.dataset is not None:
        raise ValueError("compare takes images or --dataset, not both")
    why = "for --dataset; images on the command line are all used; leave it out"
    refuse(args, ("root", "split", "subset", "limit"), why)
