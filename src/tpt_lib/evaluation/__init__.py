"""Evaluation: datasets."""

from tpt_lib.evaluation.datasets import EvalSet, ImageFiles, dataset_names, load_dataset
from tpt_lib.evaluation.problems import Problem, Problems
from tpt_lib.evaluation.registry import ENTRIES, Entry

__all__ = ["ENTRIES", "Entry", "EvalSet", "ImageFiles", "Problem", "Problems", "dataset_names", "load_dataset"]
