"""``tpt-lib demo``: run several methods on drawings, offline."""

from __future__ import annotations

import contextlib
import sys
from argparse import ArgumentParser, Namespace

from tpt_lib.cli.output import print_json

ABOUT = "Run several methods on drawings in a style the embedded model was not trained on, offline"
EXAMPLES = ("", "--style emojione-monotone --n 20 --seed 1 --out figure.png")


def add_options(command: ArgumentParser) -> None:
    """Add the options of this command."""
    command.add_argument("--style", default="noto-v1", help="style of the drawings (default noto-v1)")
    command.add_argument("--n", type=int, default=300, help="number of drawings (default 300)")
    command.add_argument(
        "--seed", type=int, default=0, help="seed of the choice of drawings and of the views (default 0)"
    )
    command.add_argument(
        "--out", default="tpt_demo.png", metavar="FILE", help="file of the figure (default tpt_demo.png)"
    )


def run(args: Namespace) -> int:
    """Run the demo, which prints its own results; with ``--json`` those go to standard error."""
    from tpt_lib.tiny.demo import demo

    with contextlib.redirect_stdout(sys.stderr if args.json else sys.stdout):
        told = demo(style=args.style, n=args.n, seed=args.seed, out=args.out)
    if args.json:
        print_json(told)
    return 0
