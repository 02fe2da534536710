"""Evaluation: datasets, runs over them, and what came of a run beside what the paper published."""

from tpt_lib.evaluation.datasets import EvalSet, ImageFiles, dataset_names, load_dataset
from tpt_lib.evaluation.metrics import calibration_error, mcnemar, relative_improvement
from tpt_lib.evaluation.paper import PaperTable, paper_tables, published
from tpt_lib.evaluation.problems import Problem, Problems
from tpt_lib.evaluation.registry import ENTRIES, Entry
from tpt_lib.evaluation.report import Report
from tpt_lib.evaluation.runner import evaluate
from tpt_lib.evaluation.runs import Run, merge_runs, read_run
from tpt_lib.evaluation.solving import evaluate_bongard
from tpt_lib.evaluation.transferring import transfer
from tpt_lib.evaluation.validation import hold_out

__all__ = [
    "ENTRIES",
    "Entry",
    "EvalSet",
    "ImageFiles",
    "PaperTable",
    "Problem",
    "Problems",
    "Report",
    "Run",
    "calibration_error",
    "dataset_names",
    "evaluate",
    "evaluate_bongard",
    "hold_out",
    "load_dataset",
    "mcnemar",
    "merge_runs",
    "paper_tables",
    "published",
    "read_run",
    "relative_improvement",
    "transfer",
]
