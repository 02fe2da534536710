"""The tables of the paper (Shu et al., NeurIPS 2022) as data, and the question what it published for a dataset and a method."""

from __future__ import annotations

import functools
import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

__all__ = ["PaperTable", "paper_tables", "published"]


@dataclass(frozen=True)
class PaperTable:
    """One table of the paper, appendix included. Accuracies are top-1, in percent.

    Attributes:
        number: the table's number in the paper, which is its source.
        title: what it is about.
        columns: datasets by their names here (``"imagenet-a"``, ``"bongard-hoi/seen_act_seen_obj"``) and averages
            (``"average: imagenet"`` over ImageNet and its four variants, ``"average: ood"`` over the variants,
            ``"average: fine-grained"``, ``"average: bongard-hoi"``); of tables 10 and 11 what else they have.
        rows: a dict a row with ``model`` (``"RN50"``, ``"ViT-B/16"``; ``"ResNet-50"`` is torchvision's; None where there is
            none), ``method``, ``values``, and ``std`` where the paper has standard deviations.
    """

    number: int
    title: str
    columns: tuple[str, ...]
    rows: tuple[dict[str, Any], ...]


@dataclass(frozen=True)
class Entry:
    """A number of the paper, its standard deviation where there is one, and the table it stands in."""

    value: float
    std: float | None
    table: int


@functools.cache
def paper_tables() -> tuple[PaperTable, ...]:
    """All tables of the paper, in its order.

    >>> [table.number for table in paper_tables()]
    [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11]
    >>> paper_tables()[2].rows[-1]["method"], paper_tables()[2].rows[-1]["values"]
    ('TPT', [66.39, 68.5, 65.98, 65.48, 66.59])
    """
    tables = json.loads(Path(__file__).with_name("published.json").read_text(encoding="utf-8"))
    return tuple(PaperTable(t["number"], t["title"], tuple(t["columns"]), tuple(t["rows"])) for t in tables)


def published(dataset: str, method: str, *, model: str = "RN50", table: int | None = None) -> float | None:
    """The accuracy in percent that the paper gives a method on a dataset, or None if it gives none.

    Args:
        dataset: as ``"imagenet-a"``, ``"Flower102"``, ``"bongard-hoi/seen_act_seen_obj"`` or ``"average: ood"``.
        method: as ``"zero-shot"``, ``"TPT"``, ``"TPT + CoOp"``, ``"majority vote"``.
        model: ``"RN50"`` or ``"ViT-B/16"``, also as ``"ViT-B-16/openai"``; for MEMO ``"ResNet-50"``. The first is the only one
            that the paper has throughout.
        table: the number of the table to look in; by default the first that has it. Tables 5 and 6 are means of three seeds.

    >>> published("imagenet-a", "TPT"), published("imagenet-a", "TPT", model="ViT-B/16", table=5)
    (26.67, 54.47)
    >>> published("mnist", "TPT") is None
    True
    """
    entry = find_entry(dataset, method, model, table)
    return None if entry is None else entry.value


def find_entry(dataset: str, method: str, model: str, table: int | None = None, *, seeds: int = 1) -> Entry | None:
    """``published`` with its source. Several seeds are compared with the paper's means over seeds where it has them."""
    wanted, column, backbone = method_key(method), dataset_key(dataset), backbone_key(model)
    found = [
        Entry(row["values"][i], row["std"][i] if "std" in row else None, t.number)
        for t in paper_tables()
        if t.number == table or table is None
        for i, name in enumerate(t.columns)
        if dataset_key(name) == column
        for row in t.rows
        if method_key(row["method"]) == wanted and row["model"] in (None, backbone)
        if not isinstance(row["values"][i], bool)
    ]
    means = [entry for entry in found if entry.std is not None]
    return next(iter(means if seeds > 1 and means else found), None)


def dataset_key(name: str) -> str:
    """A dataset's name without what spellings differ in."""
    key = re.sub(r"[^a-z0-9/]", "", name.lower())
    return DATASETS.get(key, key)


def method_key(name: str) -> str:
    """A method's name without what spellings differ in; the parts of a sum in a fixed order."""
    parts = [re.sub(r"[^a-z0-9]", "", part) for part in name.lower().split("+")]
    return "+".join(sorted(METHODS.get(part, part) for part in parts))


def backbone_key(model: str) -> str | None:
    """Which of the paper's models this is, all with their authors' weights; None for any other."""
    words = [word for word in re.split(r"[^a-z0-9]+", model.lower()) if word not in ("openai", "clip", "quickgelu")]
    return BACKBONES.get("".join(words))


DATASETS = {
    "imagenet/val": "imagenet",
    "imagenet/validation": "imagenet",
    "flower102": "flowers102",
    "flowers": "flowers102",
    "oxfordflowers": "flowers102",
    "oxfordpets": "pets",
    "oxfordiiitpet": "pets",
    "stanfordcars": "cars",
    "fgvcaircraft": "aircraft",
    "food": "food101",
    "caltech": "caltech101",
}

METHODS = {
    "zeroshot": "clip",
    "zeroshotpredict": "clip",
    "tptpredict": "tpt",
    "tptclassify": "tpt",
    "bongardtpt": "tpt",
    "baselinetpt": "tptwithoutconfidenceselection",
    "80templates": "ensemble",
    "ensemblepredict": "ensemble",
    "handcraftedensemble": "ensemble",
    "average": "averagedprediction",
    "averaged": "averagedprediction",
    "averagepredict": "averagedprediction",
    "vote": "majorityvote",
    "votepredict": "majorityvote",
    "memopredict": "memo",
}

BACKBONES = {"rn50": "RN50", "vitb16": "ViT-B/16", "vitbasepatch16": "ViT-B/16", "resnet50": "ResNet-50"}
