"""Evaluation: datasets, runs over them, and reports next to the paper's numbers."""

from tpt_lib.evaluation.compare import compare
from tpt_lib.evaluation.data.bongard_hoi import Problem, Problems
from tpt_lib.evaluation.data.data_identity import dataset_identity
from tpt_lib.evaluation.data.eval_set import EvalSet, ImageFiles
from tpt_lib.evaluation.data.load import list_datasets, load_dataset
from tpt_lib.evaluation.data.registry import ENTRIES, Entry
from tpt_lib.evaluation.data.subsets import sample_few_shot, split_validation
from tpt_lib.evaluation.metrics import calibration_error
from tpt_lib.evaluation.report import Report
from tpt_lib.evaluation.run.encode_dataset import encode_dataset
from tpt_lib.evaluation.run.evaluate import evaluate
from tpt_lib.evaluation.run.evaluate_bongard import evaluate_bongard
from tpt_lib.evaluation.run.merge_stores import merge_stores
from tpt_lib.evaluation.run_file import Run, merge_runs, read_run
from tpt_lib.evaluation.significance import mcnemar
from tpt_lib.evaluation.table import Table

__all__ = [
    "ENTRIES",
    "Entry",
    "EvalSet",
    "ImageFiles",
    "Problem",
    "Problems",
    "Report",
    "Run",
    "Table",
    "calibration_error",
    "compare",
    "dataset_identity",
    "encode_dataset",
    "evaluate",
    "evaluate_bongard",
    "list_datasets",
    "load_dataset",
    "mcnemar",
    "merge_runs",
    "merge_stores",
    "read_run",
    "sample_few_shot",
    "split_validation",
]
