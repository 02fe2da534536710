"""``tpt-lib evaluate``: evaluate methods on a dataset."""

from __future__ import annotations

import hashlib
import os
from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import Any

import tpt_lib as tpt
from tpt_lib.cli.dataset import dataset_of, has_name, has_problems
from tpt_lib.cli.loading import methods_of, model_and_prompts_of, model_of, views_of
from tpt_lib.cli.options import add_data_and_model, add_methods, add_work, refuse
from tpt_lib.cli.output import report_values, show

ABOUT = "Evaluate methods on a dataset; the same command resumes a stopped run"
EXAMPLES = (
    "--dataset noto-v1 --methods zero_shot tpt",
    "--dataset noto-v1 --methods zero_shot tda --order shuffle --seeds 0 1 2",
    "--dataset noto-v1 --methods tent --batch-size 16",
    "--dataset my/photos --out photos.jsonl --seeds 0 1 2",
    "--dataset imagenet-a --root /data --model ViT-B-16 --pretrained openai --limit 500 --preset dataset",
    "--dataset tiny-bongard --methods prototype tpt",
    "--dataset bongard-hoi --root /data --split unseen_act_unseen_obj --model RN50 --pretrained openai",
)

METHODS = ("zero_shot", "tpt")

NOT_FOR_PROBLEMS = (
    *("n_views", "recipe", "classes", "classes_file", "template", "prompt"),
    *("num_workers", "backend", "order", "streams", "preset", "reward"),
)


def add_options(command: ArgumentParser) -> None:
    """Add the options of this command."""
    command.add_argument(
        "--out",
        metavar="FILE",
        help="run file (default DATASET.jsonl, or NAME-DIGEST.jsonl for a folder); an existing one is resumed",
    )
    add_methods(command, METHODS, "; for Bongard problems prototype and tpt")
    add_work(command)
    command.add_argument(
        "--batch-size",
        type=int,
        metavar="N",
        help="number of samples given to a method together (default 1, or 8 Bongard problems); results of tent depend on it",
    )
    command.add_argument(
        "--retry-errors",
        action="store_true",
        help="when a run is resumed, try every sample with an error again (default: all but refused images)",
    )
    command.add_argument(
        "--order",
        help="order of the stream, for online methods: shuffle (default, by the seed), dataset, by-class, domains, "
        "or dirichlet (dirichlet:0.5 sets the concentration)",
    )
    command.add_argument(
        "--streams", choices=["per-rank"], help="for online methods under torchrun: give each rank its own stream"
    )
    add_data_and_model(command)


def run(args: Namespace) -> int:
    """Print the report of the run; return 1 if some sample has an error."""
    data = dataset_of(args)
    out = args.out or _default_out(args, data)
    report = (_evaluate_problems if has_problems(data) else _evaluate_images)(args, data, out)
    show(args, {"out": out, **report_values(report)}, f"{report}\nThe run is in {out}")
    return int(any(row["errors"] for row in report.rows()))


def _evaluate_problems(args: Namespace, data: tpt.EvalSet, out: str) -> tpt.Report:
    why = "not for Bongard problems, which have no views, no class names and no stream"
    refuse(args, NOT_FOR_PROBLEMS, why)
    return tpt.evaluate_bongard(model_of(args), data, args.methods or ["prototype", "tpt"], out=out, **_work_of(args))


def _evaluate_images(args: Namespace, data: Any, out: str) -> tpt.Report:
    model, prompts, options = model_and_prompts_of(args, data.classes, data.template, data.name)
    options |= {"num_workers": args.num_workers, "backend": args.backend or "local", **views_of(args)}
    options |= {"prompts": prompts, "order": args.order, "streams": args.streams}
    return tpt.evaluate(model, data, methods_of(args, METHODS), out=out, **_work_of(args), **options)


def _work_of(args: Namespace) -> dict[str, Any]:
    """Return the keywords that images and Bongard problems have in common; the default batch sizes are the library's."""
    given: dict[str, Any] = {"seeds": args.seeds, "strict": args.strict, "retry_errors": args.retry_errors}
    return given if args.batch_size is None else {**given, "batch_size": args.batch_size}


def _default_out(args: Namespace, data: tpt.EvalSet) -> str:
    """Return the name of the dataset; for a folder or file with a digest of its path, as another may have the same name."""
    if has_name(args.dataset):
        return f"{data.name}.jsonl"
    given = Path(args.dataset).expanduser()
    place = os.path.realpath(given if given.is_file() else Path(args.root or "", given))
    return f"{data.name}-{hashlib.blake2b(os.fsencode(place), digest_size=3).hexdigest()}.jsonl"
