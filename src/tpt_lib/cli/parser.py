"""The options of every command."""

from __future__ import annotations

import argparse
from typing import NoReturn

__all__ = ["COMMANDS", "FAILED", "OK", "REFUSED", "STOPPED", "parser"]

OK, FAILED, REFUSED, STOPPED = 0, 1, 2, 130

CODES = """exit codes:
  0    all went well
  1    some images could not be used (each is named), or something unexpected happened
  2    what was asked cannot be done: a wrong option, a missing file, a run file of other settings
  130  stopped with Ctrl-C"""


class _Parser(argparse.ArgumentParser):
    """Reports what is wrong in one line."""

    def error(self, message: str) -> NoReturn:
        self.exit(REFUSED, f"tpt-lib: error: {message}; '{self.prog} --help' has examples\n")


def parser() -> argparse.ArgumentParser:
    """Return the parser of all commands."""
    top = _Parser(
        prog="tpt-lib",
        description="Test-time prompt tuning of CLIP-like models. 'tpt-lib COMMAND --help' has examples.",
        epilog=f"examples:\n  tpt-lib demo\n  tpt-lib classify photo.jpg --classes cat dog 'red panda'\n\n{CODES}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = top.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name, (about, parents, examples) in COMMANDS.items():
        lines = "\n".join(f"  tpt-lib {name} {example}".rstrip() for example in examples)
        command = commands.add_parser(
            name,
            help=about[0].lower() + about[1:],
            description=f"{about}.",
            epilog=f"examples:\n{lines}\n\n{CODES}",
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        for add in (*parents, _common):
            add(command)
    return top


def _common(command: argparse.ArgumentParser) -> None:
    command.add_argument("--json", action="store_true", help="print JSON")
    command.add_argument("--debug", action="store_true", help="show the traceback of an error")


def _model(command: argparse.ArgumentParser) -> None:
    group = command.add_argument_group("model")
    group.add_argument(
        "--model",
        default="tiny",
        help="'tiny', the embedded one (default); an architecture of open_clip; a folder of a transformers model",
    )
    group.add_argument("--pretrained", metavar="TAG|FILE", help="weights of an open_clip architecture, as 'openai'")
    group.add_argument("--device", help="as 'cuda:0'; by default a GPU if there is one")


def _prompts(command: argparse.ArgumentParser, *, required: bool = False) -> None:
    group = command.add_argument_group("classes and prompts")
    either = group.add_mutually_exclusive_group(required=required)
    either.add_argument("--classes", nargs="+", metavar="NAME", help="class names")
    either.add_argument("--classes-file", metavar="FILE", help="a file with a class name on each line")
    group.add_argument("--template", metavar="TEXT", help="with {} for the name, as 'a photo of a {}.'")
    group.add_argument("--prompt", metavar="FILE", help="a learned context, as CoOp and CoCoOp save them")


def _views(command: argparse.ArgumentParser) -> None:
    group = command.add_argument_group("views")
    group.add_argument(
        "--n-views", type=int, default=64, metavar="N", help="views of each image, itself included (default 64)"
    )
    group.add_argument(
        "--recipe", choices=["crop", "augmix"], help="how they are made; by default the dataset's, or crop"
    )


def _data(command: argparse.ArgumentParser) -> None:
    group = command.add_argument_group("dataset")
    group.add_argument("--dataset", metavar="NAME|FOLDER", help="a name of 'tpt-lib datasets', or a folder of folders")
    group.add_argument("--root", metavar="FOLDER", help="where a dataset of the paper lies")
    group.add_argument("--split", default="test", help="as 'val'; of Bongard-HOI as 'seen_act_seen_obj' (default test)")
    group.add_argument("--subset", action="store_true", help="accept a part of the dataset")
    group.add_argument("--limit", type=int, metavar="N", help="N samples only, spread over the dataset")
    group.add_argument(
        "--methods",
        nargs="+",
        metavar="NAME",
        help="names of 'tpt-lib methods', as zero_shot and tpt; for Bongard problems prototype and tpt",
    )


def _classify(command: argparse.ArgumentParser) -> None:
    command.add_argument("images", nargs="+", metavar="IMAGE")
    _prompts(command, required=True)
    command.add_argument("--seed", type=int, default=0, help="seed of the views (default 0)")
    command.add_argument("--method", default="tpt", metavar="NAME", help="one of 'tpt-lib methods' (default tpt)")
    command.add_argument("--top", type=int, default=3, metavar="K", help="number of classes to show (default 3)")


def _evaluate(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--out", metavar="FILE", help="the run file (default DATASET.jsonl); an existing one is resumed"
    )
    command.add_argument(
        "--seeds", type=int, nargs="+", default=[0], metavar="SEED", help="seed of the views (default 0)"
    )
    command.add_argument(
        "--num-workers", type=int, metavar="N", help="processes that make views (default: 2 with a GPU)"
    )
    command.add_argument("--batch-size", type=int, metavar="N", help="samples given to a method together")
    command.add_argument("--backend", choices=["local", "ray"], default="local", help="ray: N actors of a Ray cluster")
    command.add_argument("--strict", action="store_true", help="stop at an image that cannot be used")


def _compare(command: argparse.ArgumentParser) -> None:
    command.add_argument("images", nargs="*", metavar="IMAGE", help="images without labels, instead of a dataset")
    command.add_argument("--seed", type=int, default=0, help="seed of the views (default 0)")


def _report(command: argparse.ArgumentParser) -> None:
    command.add_argument("runs", nargs="+", metavar="RUN", help="run files, of one dataset or several")
    command.add_argument("--format", choices=["table", "markdown", "csv"], default="table")
    command.add_argument(
        "--compare", nargs=2, metavar="METHOD", help="McNemar's test between two methods, as the runs name them"
    )
    command.add_argument("--plots", metavar="FOLDER", help="save accuracies.png and reliability.png there")


def _datasets(command: argparse.ArgumentParser) -> None:
    command.add_argument("--root", metavar="FOLDER", help="say which of them are found there")


def _models(command: argparse.ArgumentParser) -> None:
    command.add_argument("contains", nargs="?", default="", metavar="TEXT", help="only those with this in their name")


def _demo(command: argparse.ArgumentParser) -> None:
    command.add_argument("--style", default="noto-v1", help="style of the drawings (default noto-v1)")
    command.add_argument("--n", type=int, help="number of drawings (default all)")
    command.add_argument("--seed", type=int, default=0, help="seed of their choice and of the views (default 0)")
    command.add_argument("--out", default="tpt_demo.png", metavar="FILE", help="the figure (default tpt_demo.png)")


COMMANDS = {
    "demo": (
        "TPT on drawings that the embedded model has never seen, offline",
        (_demo,),
        ["", "--style emojione-monotone --n 20 --seed 1 --out figure.png"],
    ),
    "classify": (
        "Classify images, by default each with a prompt tuned to it; images come before the options",
        (_classify, _views, _model),
        [
            "drawing.png --classes cat dog 'red panda'",
            "*.jpg --classes-file names.txt --template 'a sketch of a {}.' --json",
            "photo.jpg --classes cat dog --model ViT-B-16 --pretrained openai",
        ],
    ),
    "evaluate": (
        "Evaluate methods on a dataset; run again, it resumes where it was stopped",
        (_evaluate, _data, _prompts, _views, _model),
        [
            "--dataset noto-v1 --methods zero_shot tpt",
            "--dataset my/photos --out photos.jsonl --seeds 0 1 2",
            "--dataset imagenet-a --root /data --model ViT-B-16 --pretrained openai --limit 500",
            "--dataset tiny-bongard --methods prototype tpt",
            "--dataset bongard-hoi --root /data --split unseen_act_unseen_obj --model RN50 --pretrained openai",
        ],
    ),
    "compare": (
        "Accuracy, entropy, seconds and memory of methods on some images, side by side",
        (_compare, _data, _prompts, _views, _model),
        ["--dataset noto-v1 --limit 20", "photo.jpg --classes cat dog --methods zero_shot tpt"],
    ),
    "report": (
        "Summarize run files next to the paper's numbers",
        (_report,),
        ["noto-v1.jsonl", "runs/*.jsonl --format markdown", "noto-v1.jsonl --compare zero-shot TPT --plots figures"],
    ),
    "datasets": ("List the datasets that go by name", (_datasets,), ["", "--root /data"]),
    "methods": ("List the methods with what they need and where they were published", (), [""]),
    "models": ("List the models that can be loaded", (_models,), ["", "ViT-B-16"]),
}
