"""``tpt-lib classify``: classify image files."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from typing import Any

import tpt_lib as tpt
from tpt_lib.cli.loading import classes_of, model_and_prompts_of, views_of
from tpt_lib.cli.options import add_model, add_prompts, add_seed, add_settings, add_views, refuse
from tpt_lib.cli.output import print_json, say
from tpt_lib.evaluation.data.eval_set import TEMPLATE

ABOUT = "Classify images by TPT or another method; pass images before options"
EXAMPLES = (
    "drawing.png --classes cat dog 'red panda'",
    "*.jpg --classes-file names.txt --template 'a sketch of a {}.' --json",
    "photo.jpg --classes cat dog --model ViT-B-16 --pretrained openai",
    "photo.jpg --classes cat dog --model ViT-B-16 --pretrained openai --method rlcf --reward ViT-L-14:openai",
)


def add_options(command: ArgumentParser) -> None:
    """Add the options of this command."""
    command.add_argument("images", nargs="+", metavar="IMAGE", help="image files")
    add_seed(command)
    command.add_argument("--method", default="tpt", metavar="NAME", help="name from 'tpt-lib methods' (default tpt)")
    command.add_argument("--top", type=int, metavar="K", help="number of classes to show (default 3)")
    add_prompts(command, required=True)
    add_views(command)
    add_settings(command)
    add_model(command)


def run(args: Namespace) -> int:
    """Print the prediction for each image; return 1 if some image could not be used."""
    if args.json:
        refuse(args, ("top",), "no effect with --json, which has the probabilities of all classes; leave it out")
    top = 3 if args.top is None else args.top
    if top < 1:
        raise ValueError(f"--top must be at least 1, but is {top}")
    model, prompts, options = model_and_prompts_of(args, classes_of(args), TEMPLATE)
    options |= views_of(args, seed=args.seed)
    found: list[dict[str, Any]] = []
    for image in args.images:
        try:
            prediction = tpt.classify(model, image, prompts, method=args.method, **options)
        except (tpt.ImageError, OSError) as error:
            found.append({"image": image, "error": str(error)})
            say(f"{image}: {error}")
            continue
        found.append({"image": image, **prediction.to_dict()})
        if not args.json:
            print(f"{image}: {_shown(prediction, top)}")
    if args.json:
        print_json({"classes": prompts.names, "predictions": found})
    return int(any("error" in one for one in found))


def _shown(prediction: tpt.Prediction, top: int) -> str:
    likeliest = ", ".join(f"{name} {p:.2f}" for name, p in prediction.top(top))
    if prediction.before is None:
        return likeliest
    return likeliest + "; zero-shot {} {:.2f}".format(*prediction.zero_shot.top(1)[0])
