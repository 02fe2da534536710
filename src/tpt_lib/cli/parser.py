"""Define the options of every command."""

from __future__ import annotations

import argparse
from typing import NoReturn

__all__ = ["COMMANDS", "FAILED", "OK", "REFUSED", "STOPPED", "parser"]

OK, FAILED, REFUSED, STOPPED = 0, 1, 2, 130

CODES = """exit codes:
  0    success
  1    some images could not be used (each is named), or an unexpected error
  2    invalid request: a wrong option, a missing file, a run file with different settings
  130  stopped with Ctrl-C"""


class _Parser(argparse.ArgumentParser):
    """Report errors in one line."""

    def error(self, message: str) -> NoReturn:
        self.exit(REFUSED, f"tpt-lib: error: {message}; '{self.prog} --help' has examples\n")


def parser() -> argparse.ArgumentParser:
    """Return the parser of all commands."""
    top = _Parser(
        prog="tpt-lib",
        description="Test-time prompt tuning of CLIP-like models. 'tpt-lib COMMAND --help' has examples.",
        epilog=f"examples:\n  tpt-lib demo\n  tpt-lib classify photo.jpg --classes cat dog 'red panda'\n\n{CODES}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,  # a new option must not change what a script means
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
            allow_abbrev=False,
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
        help="'tiny', the embedded model (default); an open_clip architecture; or the folder of a transformers model",
    )
    group.add_argument(
        "--pretrained", metavar="TAG|FILE", help="weights of an open_clip architecture, such as 'openai'"
    )
    group.add_argument("--device", help="torch device, such as 'cuda:0' (default: a GPU if there is one)")


def _prompts(command: argparse.ArgumentParser, *, required: bool = False) -> None:
    group = command.add_argument_group("classes and prompts")
    either = group.add_mutually_exclusive_group(required=required)
    either.add_argument("--classes", nargs="+", metavar="NAME", help="class names")
    either.add_argument("--classes-file", metavar="FILE", help="text file with a class name per line")
    group.add_argument(
        "--template", metavar="TEXT", help="prompt with {} for the class name, such as 'a photo of a {}.'"
    )
    group.add_argument(
        "--prompt", metavar="FILE", help="checkpoint with a learned context, in the format of CoOp and CoCoOp"
    )


def _views(command: argparse.ArgumentParser) -> None:
    group = command.add_argument_group("views")
    group.add_argument(
        "--n-views", type=int, metavar="N", help="number of views per image, including the image itself (default 64)"
    )
    group.add_argument(
        "--recipe", choices=["crop", "augmix"], help="how views are made (default: the dataset's own, or crop)"
    )


def _settings(command: argparse.ArgumentParser) -> None:
    group = command.add_argument_group("settings of methods")
    group.add_argument(
        "--preset",
        metavar="DATASET",
        help="use the settings of the methods' authors for a dataset of the paper, such as 'imagenet-a'; 'dataset' is that of "
        "--dataset (default: the methods' defaults)",
    )
    group.add_argument(
        "--reward",
        nargs="+",
        metavar="MODEL[:TAG]",
        help="second CLIP for methods that need a reward: 'tiny', an open_clip architecture with its weights such as "
        "'ViT-L-14:openai', or the folder of a transformers model; several are averaged",
    )


def _data(command: argparse.ArgumentParser) -> None:
    group = _source(command)
    group.add_argument(
        "--methods",
        nargs="+",
        metavar="NAME",
        help="names from 'tpt-lib methods', or 'all' (default: zero_shot tpt); for Bongard problems prototype and tpt",
    )


def _source(command: argparse.ArgumentParser) -> argparse._ArgumentGroup:
    group = command.add_argument_group("dataset")
    group.add_argument(
        "--dataset",
        metavar="NAME|PATH",
        help="name from 'tpt-lib datasets', a folder with a subfolder per class, a CSV, TSV or Parquet file, tar shards, or "
        "for evaluate a store",
    )
    group.add_argument(
        "--root", metavar="FOLDER", help="folder that has the datasets with names, or the images of a table"
    )
    group.add_argument("--split", help="such as 'val', or 'seen_act_seen_obj' for Bongard-HOI (default test)")
    group.add_argument("--subset", action="store_true", help="accept an incomplete copy of the dataset")
    group.add_argument("--limit", type=int, metavar="N", help="use only N samples, evenly spaced over the dataset")
    return group


def _classify(command: argparse.ArgumentParser) -> None:
    command.add_argument("images", nargs="+", metavar="IMAGE", help="image files")
    _prompts(command, required=True)
    command.add_argument("--seed", type=int, default=0, help="seed of the views (default 0)")
    command.add_argument("--method", default="tpt", metavar="NAME", help="name from 'tpt-lib methods' (default tpt)")
    command.add_argument("--top", type=int, metavar="K", help="number of classes to show (default 3)")


def _evaluate(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--out",
        metavar="FILE",
        help="run file (default DATASET.jsonl, or NAME-DIGEST.jsonl for a folder); an existing one is resumed",
    )
    command.add_argument(
        "--seeds", type=int, nargs="+", default=[0], metavar="SEED", help="seeds of the views (default 0)"
    )
    command.add_argument(
        "--order",
        help="order of the stream, for online methods: shuffle (default, by the seed), dataset, by-class, dirichlet or such as "
        "dirichlet:0.5, domains",
    )
    command.add_argument(
        "--streams", choices=["per-rank"], help="for online methods under torchrun: each rank has a stream of its own"
    )
    command.add_argument(
        "--num-workers",
        type=int,
        metavar="N",
        help="number of processes that make views (default: 2 with a GPU, else 0); with Ray, of actors",
    )
    command.add_argument("--batch-size", type=int, metavar="N", help="number of samples given to a method together")
    command.add_argument("--backend", choices=["local", "ray"], help="where the work is done (default local)")
    command.add_argument(
        "--strict", action="store_true", help="stop at an image that cannot be used, instead of recording its error"
    )
    command.add_argument(
        "--retry-errors",
        action="store_true",
        help="try every sample with an error again (default: all but refused images, when a run is resumed)",
    )


def _encode(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--out", metavar="FOLDER", required=True, help="folder of the store; an existing one is resumed"
    )
    command.add_argument(
        "--seeds", type=int, nargs="+", default=[0], metavar="SEED", help="seeds of the views (default 0)"
    )
    command.add_argument("--dtype", choices=["float16", "float32"], default="float16", help="(default float16)")
    command.add_argument("--name", default="model", help="name of the model in the store (default model)")
    command.add_argument("--num-workers", type=int, metavar="N", help="number of processes that make views")
    command.add_argument("--backend", choices=["local", "ray"], help="where the work is done (default local)")
    command.add_argument(
        "--strict", action="store_true", help="stop at an image that cannot be used, instead of recording its error"
    )


def _store(command: argparse.ArgumentParser) -> None:
    command.add_argument("action", choices=["info", "verify", "merge"], help="what to do")
    command.add_argument("stores", nargs="+", metavar="STORE", help="the folder of a store; for merge, of several")
    command.add_argument("--out", metavar="FOLDER", help="folder of the merged store")


def _compare(command: argparse.ArgumentParser) -> None:
    command.add_argument("images", nargs="*", metavar="IMAGE", help="image files without labels, instead of a dataset")
    command.add_argument("--seed", type=int, default=0, help="seed of the views (default 0)")


def _report(command: argparse.ArgumentParser) -> None:
    command.add_argument("runs", nargs="+", metavar="RUN", help="run files, of one or several datasets")
    command.add_argument("--format", choices=["table", "markdown", "csv"], help="(default table)")
    command.add_argument(
        "--compare", nargs=2, metavar="METHOD", help="McNemar's test between two methods, by their names in the report"
    )
    command.add_argument("--plots", metavar="FOLDER", help="folder to save accuracies.png and reliability.png in")
    command.add_argument(
        "--html", metavar="FILE", help="file to write the report to as a page with charts and a gallery"
    )
    command.add_argument(
        "--root", metavar="FOLDER", help="with --html: the folder of the images, for thumbnails; as --root of evaluate"
    )


def _reproduce(command: argparse.ArgumentParser) -> None:
    command.add_argument("experiment", nargs="?", metavar="NAME", help="name from --list, such as table1")
    command.add_argument("--list", action="store_true", help="list what can be reproduced, and what cannot and why")
    command.add_argument(
        "--from-followers",
        action="store_true",
        help="reproduce the published numbers of later methods; NAME is then a method, and all of them by default",
    )
    command.add_argument("--root", metavar="FOLDER", help="folder that has the datasets")
    command.add_argument(
        "--out",
        metavar="FOLDER",
        default="reproduction",
        help="folder of features, runs and pages (default reproduction); an existing one is resumed",
    )
    command.add_argument(
        "--dry-run", action="store_true", help="only say what would be done, how long it takes and how much disk"
    )
    command.add_argument("--coop", nargs="+", metavar="FILE", help="checkpoints of CoOp, learned on ImageNet")
    command.add_argument("--cocoop", nargs="+", metavar="FILE", help="checkpoints of CoCoOp, learned on ImageNet")
    command.add_argument("--reward", metavar="MODEL[:TAG]", help="second CLIP for RLCF, such as 'ViT-L-14:openai'")
    command.add_argument(
        "--subset", action="store_true", help="accept incomplete datasets; their results are not compared"
    )
    command.add_argument(
        "--limit", type=int, metavar="N", help="use only N samples of each dataset; results are not compared"
    )


def _datasets(command: argparse.ArgumentParser) -> None:
    command.add_argument("--root", metavar="FOLDER", help="folder to look for them in")


def _models(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "contains", nargs="?", default="", metavar="TEXT", help="show only models with this in their name"
    )


def _demo(command: argparse.ArgumentParser) -> None:
    command.add_argument("--style", default="noto-v1", help="style of the drawings (default noto-v1)")
    command.add_argument("--n", type=int, default=300, help="number of drawings (default 300)")
    command.add_argument(
        "--seed", type=int, default=0, help="seed of the choice of drawings and of the views (default 0)"
    )
    command.add_argument(
        "--out", default="tpt_demo.png", metavar="FILE", help="file of the figure (default tpt_demo.png)"
    )


def _app(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--models",
        nargs="+",
        default=["tiny"],
        metavar="MODEL[:TAG]",
        help="models to choose from: 'tiny', the embedded one (default); an open_clip architecture with its weights such as "
        "'ViT-B-16:openai'; or the folder of a transformers model. No other model is ever loaded",
    )
    command.add_argument(
        "--store",
        metavar="FOLDER",
        help="a feature store of one of the models, to choose its samples in place of images",
    )
    command.add_argument("--device", help="torch device, such as 'cuda:0' (default: a GPU if there is one)")
    command.add_argument(
        "--host", default="127.0.0.1", help="address to listen on (default 127.0.0.1, which only this machine reaches)"
    )
    command.add_argument("--port", type=int, help="port (default: the first free one from 7860)")


COMMANDS = {
    "demo": (
        "Run several methods on drawings in a style the embedded model was not trained on, offline",
        (_demo,),
        ["", "--style emojione-monotone --n 20 --seed 1 --out figure.png"],
    ),
    "classify": (
        "Classify images, each with a prompt tuned to it or by another method; pass images before options",
        (_classify, _views, _settings, _model),
        [
            "drawing.png --classes cat dog 'red panda'",
            "*.jpg --classes-file names.txt --template 'a sketch of a {}.' --json",
            "photo.jpg --classes cat dog --model ViT-B-16 --pretrained openai",
            "photo.jpg --classes cat dog --model ViT-B-16 --pretrained openai --method rlcf --reward ViT-L-14:openai",
        ],
    ),
    "app": (
        "Run a page in the browser to try methods on your images, or on the samples of a store",
        (_app,),
        ["", "--models tiny ViT-B-16:openai --port 8000", "--store drawings"],
    ),
    "evaluate": (
        "Evaluate methods on a dataset; the same command resumes a stopped run",
        (_evaluate, _data, _prompts, _views, _settings, _model),
        [
            "--dataset noto-v1 --methods zero_shot tpt",
            "--dataset noto-v1 --methods zero_shot tda --order shuffle --seeds 0 1 2",
            "--dataset my/photos --out photos.jsonl --seeds 0 1 2",
            "--dataset imagenet-a --root /data --model ViT-B-16 --pretrained openai --limit 500 --preset dataset",
            "--dataset tiny-bongard --methods prototype tpt",
            "--dataset bongard-hoi --root /data --split unseen_act_unseen_obj --model RN50 --pretrained openai",
        ],
    ),
    "encode": (
        "Encode the views of a dataset into a store, from which evaluate runs without images",
        (_encode, _source, _views, _model),
        [
            "--dataset noto-v1 --out drawings",
            "--dataset imagenet-a --root /data --model ViT-B-16 --pretrained openai --seeds 0 1 2 --out imagenet-a",
        ],
    ),
    "store": (
        "Look at a store, check it, or join several",
        (_store,),
        ["info drawings", "verify drawings", "merge part1 part2 --out whole"],
    ),
    "compare": (
        "Compare accuracy, entropy, seconds and memory of methods on some images",
        (_compare, _data, _prompts, _views, _settings, _model),
        ["--dataset noto-v1 --limit 20 --methods all", "photo.jpg --classes cat dog --methods zero_shot tpt"],
    ),
    "report": (
        "Summarize run files next to the paper's numbers",
        (_report,),
        [
            "noto-v1.jsonl",
            "runs/*.jsonl --format markdown",
            "noto-v1.jsonl --compare zero-shot TPT --plots figures",
            "pets.jsonl --html pets.html --root /data",
        ],
    ),
    "reproduce": (
        "Run a table of the paper next to its numbers; the same command resumes it",
        (_reproduce, _model),
        [
            "--list",
            "table1 --root /data --model ViT-B-16 --pretrained openai --dry-run",
            "table1 --root /data --model ViT-B-16 --pretrained openai",
            "table5 --root /data --model RN50 --pretrained openai --coop coop/seed*/model.pth.tar-50",
            "table2 --root /data --model RN50 --pretrained openai --limit 100",
            "zero --from-followers --root /data --model ViT-B-16 --pretrained openai",
        ],
    ),
    "datasets": ("List the datasets that can be loaded by name", (_datasets,), ["", "--root /data"]),
    "methods": ("List the methods, what they need and where they were published", (), [""]),
    "models": ("List the models that can be loaded", (_models,), ["", "ViT-B-16"]),
}
