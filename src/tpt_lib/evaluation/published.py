"""Look up published numbers: the tables of the paper (Shu et al., NeurIPS 2022), and those of later methods."""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tpt_lib.evaluation.published_names import backbone_key, dataset_key, method_key, published_names

__all__ = [
    "Follower",
    "PaperNumber",
    "PaperTable",
    "find_number",
    "follower_numbers",
    "paper_accuracy",
    "paper_tables",
]


@dataclass(frozen=True)
class PaperTable:
    """One table of the paper, including its appendix. Accuracies are top-1, in percent.

    Attributes:
        number: the table's number in the paper.
        title: its subject.
        columns: datasets by their names in this library (``"imagenet-a"``, ``"bongard-hoi/seen_act_seen_obj"``) and
            averages (``"average: imagenet"`` over ImageNet and its four variants, ``"average: ood"`` over the variants,
            ``"average: fine-grained"``, ``"average: bongard-hoi"``). Tables 10 and 11 have other columns.
        rows: one dict per row with ``model`` (``"RN50"``, ``"ViT-B/16"``; ``"ResNet-50"`` is torchvision's; None where
            the table has none), ``method``, ``values``, and ``std`` where the paper has standard deviations.
    """

    number: int
    title: str
    columns: tuple[str, ...]
    rows: tuple[dict[str, Any], ...]


@dataclass(frozen=True)
class PaperNumber:
    """A published accuracy in percent, its standard deviation or None, and where it is from.

    Attributes:
        value: the accuracy.
        std: its standard deviation over seeds, if known.
        table: the number of the table of the paper, None if it is from elsewhere.
        source: where it is from if not from the paper, and its setting.
    """

    value: float
    std: float | None
    table: int | None
    source: str | None = None


@dataclass(frozen=True)
class Follower:
    """The published numbers of a later method, or of a baseline that it is compared with, in percent.

    Attributes:
        method: the method.
        model: the model, as ``"ViT-B/16"``.
        source: where the numbers are from.
        setting: differences from the method's defaults, such as texts, a reward or an attack; empty if there are none.
        top1: top-1 accuracy for each dataset or average.
        ece: calibration error for each dataset or average.
    """

    method: str
    model: str
    source: str
    setting: str = ""
    top1: Mapping[str, float] = field(default_factory=dict)
    ece: Mapping[str, float] = field(default_factory=dict)


@functools.cache
def paper_tables() -> tuple[PaperTable, ...]:
    """Return all tables of the paper, in order.

    Returns:
        The tables, each with its rows as data.

    >>> [table.number for table in paper_tables()]
    [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11]
    >>> paper_tables()[2].rows[-1]["method"], paper_tables()[2].rows[-1]["values"]
    ('TPT', [66.39, 68.5, 65.98, 65.48, 66.59])
    """
    tables = json.loads(Path(__file__).with_name("published.json").read_text(encoding="utf-8"))
    return tuple(PaperTable(t["number"], t["title"], tuple(t["columns"]), tuple(t["rows"])) for t in tables)


@functools.cache
def follower_numbers() -> tuple[Follower, ...]:
    """Return the numbers of later methods that could be traced to a public source.

    >>> [(row.method, row.top1["imagenet"]) for row in follower_numbers() if row.method in ("C-TPT", "O-TPT")]
    [('C-TPT', 68.5), ('O-TPT', 67.33)]
    """
    data = json.loads(Path(__file__).with_name("published_followers.json").read_text(encoding="utf-8"))
    return tuple(Follower(**{**row, "source": data["sources"][row["source"]]}) for row in data["rows"])


def paper_accuracy(dataset: str, method: str, *, model: str = "RN50", table: int | None = None) -> float | None:
    """Return the top-1 accuracy that the paper reports for a method on a dataset.

    Args:
        dataset: a dataset or average, such as ``"imagenet-a"``, ``"Flower102"``, ``"bongard-hoi/seen_act_seen_obj"`` or
            ``"average: ood"``.
        method: a method, such as ``"zero-shot"``, ``"TPT"``, ``"TPT + CoOp"`` or ``"majority vote"``.
        model: ``"RN50"`` (default; every table has it) or ``"ViT-B/16"``, also spelled ``"ViT-B-16/openai"``; for MEMO
            ``"ResNet-50"``.
        table: number of the table to search (default: the first that has the number). Tables 5 and 6 are means of
            three seeds.

    Returns:
        The accuracy in percent, or None if the paper has none.

    >>> paper_accuracy("imagenet-a", "TPT"), paper_accuracy("imagenet-a", "TPT", model="ViT-B/16", table=5)
    (26.67, 54.47)
    >>> paper_accuracy("mnist", "TPT") is None
    True
    """
    found = find_number(dataset, method, model, table)
    return None if found is None else found.value


def find_number(
    dataset: str, method: str, model: str, table: int | None = None, *, seeds: int = 1
) -> PaperNumber | None:
    """Return the number of ``paper_accuracy`` with its source, and also numbers of later methods.

    Args:
        dataset: as for ``paper_accuracy``.
        method: as for ``paper_accuracy``.
        model: as for ``paper_accuracy``.
        table: as for ``paper_accuracy``.
        seeds: number of seeds of the result to compare (default 1). Several seeds are compared with the paper's means
            over seeds, where it has them.

    Returns:
        The number, or None if there is none.
    """
    names = published_names()
    wanted, column, backbone = method_key(method, names), dataset_key(dataset), backbone_key(model)
    found = [
        PaperNumber(row["values"][i], row["std"][i] if "std" in row else None, t.number)
        for t in paper_tables()
        if t.number == table or table is None
        for i, name in enumerate(t.columns)
        if dataset_key(name) == column
        for row in t.rows
        if method_key(row["method"], names) == wanted and row["model"] in (None, backbone)
        if not isinstance(row["values"][i], bool)
    ]
    means = [number for number in found if number.std is not None]
    if found or table is not None:
        return next(iter(means if seeds > 1 and means else found), None)
    later = [row for row in follower_numbers() if method_key(row.method, names) == wanted and row.model == backbone]
    return next(iter(_of_followers(later, column)), None)


def _of_followers(rows: list[Follower], dataset: str) -> list[PaperNumber]:
    """Return the numbers of a later method, those of its default setting first."""
    return [
        PaperNumber(value, None, None, f"{row.source}{f', {row.setting}' if row.setting else ''}")
        for row in sorted(rows, key=lambda row: bool(row.setting))
        for name, value in row.top1.items()
        if dataset_key(name) == dataset
    ]
