"""``tpt-lib report``: summarize run files."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from pathlib import Path

import tpt_lib as tpt
from tpt_lib import plots
from tpt_lib.cli.options import refuse
from tpt_lib.cli.output import print_json, report_values, say
from tpt_lib.evaluation.metrics import require_torchmetrics
from tpt_lib.plots.figure import require_matplotlib

ABOUT = "Summarize run files next to the paper's numbers"
EXAMPLES = (
    "noto-v1.jsonl",
    "runs/*.jsonl --format markdown",
    "noto-v1.jsonl --compare zero-shot TPT --plots figures",
    "pets.jsonl --html pets.html --root /data",
)


def add_options(command: ArgumentParser) -> None:
    """Add the options of this command."""
    command.add_argument("runs", nargs="+", metavar="RUN", help="run files, of one or several datasets")
    command.add_argument("--format", choices=["table", "markdown", "csv"], help="how to print it (default table)")
    command.add_argument(
        "--compare", nargs=2, metavar="METHOD", help="McNemar's test between two methods, by their names in the report"
    )
    command.add_argument("--plots", metavar="FOLDER", help="folder to save accuracies.png and reliability.png in")
    command.add_argument(
        "--html", metavar="FILE", help="file to write the report to as a page with charts and a gallery"
    )
    command.add_argument(
        "--root",
        metavar="FOLDER",
        help="with --html: folder of the images, for thumbnails: --root of evaluate, or the folder that was evaluated",
    )


def run(args: Namespace) -> int:
    """Print the report, and write its page and plots."""
    if args.json:
        refuse(args, ("format",), "no effect with --json; leave one of them out")
    if args.plots:
        require_matplotlib()
    if args.html is None:
        refuse(args, ("root",), "no effect without --html, which has thumbnails; leave it out")
    require_torchmetrics()
    report = tpt.Report.read(args.runs)
    if args.html is not None:
        report.to_html(args.html, dataset=args.root)
        say(f"The page is in {args.html}")
    if args.plots:
        _save_plots(report, Path(args.plots))
    tested = report.compare(*args.compare) if args.compare else None
    if args.json:
        print_json({**report_values(report), "compare": tested and tested.to_dict()})
        return 0
    formats = {"table": repr, "markdown": tpt.Report.to_markdown, "csv": tpt.Report.to_csv}
    print(formats[args.format or "table"](report).rstrip())
    if tested is not None:
        print()
        print(tested.to_markdown() if args.format == "markdown" else tested)
    return 0


def _save_plots(report: tpt.Report, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    plots.plot_accuracies(report).savefig(folder / "accuracies.png")
    plots.plot_reliability(report).savefig(folder / "reliability.png")
