"""Find the datasets of an experiment in a folder, and report what is missing."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tpt_lib.evaluation.data.eval_set import EvalSet
from tpt_lib.evaluation.data.load import load_dataset
from tpt_lib.evaluation.data.registry import ENTRIES
from tpt_lib.evaluation.data.subsets import take_evenly

__all__ = ["Source", "find_source"]


@dataclass(frozen=True)
class Source:
    """A dataset of an experiment.

    Attributes:
        label: its name, with its split unless that is ``"test"``.
        data: the dataset, or None if it cannot be used.
        problem: why it cannot be used.
        part: how it differs from the dataset of the published numbers, such as ``"20 of 7500 images"``; empty if it is the
            same.
    """

    label: str
    data: EvalSet | None
    problem: str = ""
    part: str = ""

    @property
    def name(self) -> str:
        """The name of the dataset, without its split."""
        return self.label.partition("/")[0]

    @property
    def layout(self) -> str:
        """The files expected below the root."""
        return ENTRIES[self.name].layout

    @property
    def of_problems(self) -> bool:
        """Whether it consists of Bongard problems."""
        return ENTRIES[self.name].family == "problems"


def find_source(label: str, root: Path, *, subset: bool, limit: int | None) -> Source:
    """Load a dataset, or find out why it cannot be used. Reads no image.

    Args:
        label: its name, with its split after a slash unless that is ``"test"``.
        root: the folder that has the datasets.
        subset: whether to accept an incomplete copy.
        limit: number of samples to use, evenly spaced over the dataset; None for all.

    Returns:
        The dataset, or the problem.
    """
    name, _, split = label.partition("/")
    part = ""
    try:
        data = load_dataset(name, root, split=split or "test")
    except (ValueError, OSError, ImportError) as error:
        problem = str(error)
        if not subset:
            return Source(label, None, problem)
        try:
            data = load_dataset(name, root, split=split or "test", subset=True)
        except (ValueError, OSError, ImportError) as again:
            return Source(label, None, str(again))
        part = f"an incomplete copy of {len(data)}{_of(label)}"
    if data.split.startswith("original-"):
        part = f"the original split of {len(data)}{_of(label)}, not the paper's"
    if limit is not None and limit < len(data):
        part = f"{limit} of {len(data)}{_unit(label)}" + (f", {part}" if part else "")
        data = take_evenly(data, limit)
    return Source(label, data, part=part)


def _of(label: str) -> str:
    """Return the published number of images, if it is known, and their unit."""
    name, _, split = label.partition("/")
    count = ENTRIES[name].counts.get(split or "test")
    return _unit(label) if count is None else f" of {count}{_unit(label)}"


def _unit(label: str) -> str:
    return " problems" if ENTRIES[label.partition("/")[0]].family == "problems" else " images"
