"""``tpt-lib reproduce``: run a table of the paper next to its numbers."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from tpt_lib import paper
from tpt_lib.cli.loading import model_of, reward_of
from tpt_lib.cli.options import add_model, refuse
from tpt_lib.cli.output import print_json, show

ABOUT = "Run a table of the paper next to its numbers; the same command resumes it"
EXAMPLES = (
    "--list",
    "table1 --root /data --model ViT-B-16 --pretrained openai --dry-run",
    "table1 --root /data --model ViT-B-16 --pretrained openai",
    "table5 --root /data --model RN50 --pretrained openai --coop coop/seed*/model.pth.tar-50",
    "table2 --root /data --model RN50 --pretrained openai --limit 100",
    "zero --from-followers --root /data --model ViT-B-16 --pretrained openai",
)


def add_options(command: ArgumentParser) -> None:
    """Add the options of this command."""
    command.add_argument("experiment", nargs="?", metavar="NAME", help="name from --list, such as table1")
    command.add_argument("--list", action="store_true", help="list what can be reproduced, and what cannot and why")
    command.add_argument(
        "--from-followers",
        action="store_true",
        help="reproduce the published numbers of later methods; NAME is then a method (default: all of them)",
    )
    command.add_argument("--root", metavar="FOLDER", help="folder that has the datasets")
    command.add_argument(
        "--out",
        metavar="FOLDER",
        default="reproduction",
        help="folder of features, runs and pages (default reproduction); an existing one is resumed",
    )
    command.add_argument(
        "--dry-run", action="store_true", help="only print what would be done, with the time and disk it needs"
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
    add_model(command)


def run(args: Namespace) -> int:
    """Print the plan, run it and print its results; return 1 if some image could not be used."""
    if args.list:
        return _list(args)
    plan = _plan(args)
    if args.dry_run:
        show(args, {"plan": plan.to_dict()}, plan)
        return 0
    if not args.json:
        print(plan, flush=True)
    done = paper.reproduce(plan)
    if args.json:
        print_json({"plan": plan.to_dict(), **done.to_dict(), "page": str(done.page)})
    else:
        print(f"\n{done}\nThe page is {done.page}")
    return int(any(one.errors for one in done.results))


def _list(args: Namespace) -> int:
    others = ("experiment", "root", "dry_run", "coop", "cocoop", "reward", "subset", "limit")
    refuse(args, others, "no effect with --list; leave it out")
    table = paper.list_experiments(followers=args.model if args.from_followers else None)
    show(args, table.to_dict(), table)
    return 0


def _plan(args: Namespace) -> paper.Plan:
    if args.experiment is None and not args.from_followers:
        raise ValueError("reproduce needs a name from 'tpt-lib reproduce --list', such as table1")
    if args.root is None:
        raise ValueError("--root is missing: pass the folder that has the datasets")
    reward = None if args.reward is None else reward_of(args, args.reward)
    return paper.plan_experiment(
        model_of(args),
        args.experiment,
        args.root,
        out=args.out,
        coop=args.coop or (),
        cocoop=args.cocoop or (),
        reward=reward,
        subset=args.subset,
        limit=args.limit,
        followers=args.from_followers,
    )
