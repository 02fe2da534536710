"""Evaluation: what came of a run, beside what the paper published."""

from tpt_lib.evaluation.metrics import calibration_error, mcnemar, relative_improvement
from tpt_lib.evaluation.paper import PaperTable, paper_tables, published
from tpt_lib.evaluation.report import Report
from tpt_lib.evaluation.runs import Run, merge_runs, read_run

__all__ = [
    "PaperTable",
    "Report",
    "Run",
    "calibration_error",
    "mcnemar",
    "merge_runs",
    "paper_tables",
    "published",
    "read_run",
    "relative_improvement",
]
