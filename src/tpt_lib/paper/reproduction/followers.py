"""The published numbers of later methods as experiments: one per method, and all of them together."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

from tpt_lib.evaluation.data.registry import ENTRIES
from tpt_lib.evaluation.published import Follower, PaperNumber, follower_numbers
from tpt_lib.evaluation.published_names import backbone_key
from tpt_lib.methods.presets import FINE_GRAINED, IMAGENET_VARIANTS
from tpt_lib.paper.reproduction.definitions import Experiment, Row, make_row, read_toml
from tpt_lib.paper.reproduction.texts import slug

__all__ = ["follower_experiments"]

ALL = "followers"
SEVERITY = 5  # of ImageNet-C, in the published comparisons
CORRUPTIONS = ENTRIES["imagenet-c"].corruptions[:15]  # the 15 of the benchmark, without its extra ones

COLUMNS: Mapping[str, tuple[str, ...]] = {
    "average: ood": IMAGENET_VARIANTS,
    "average: fine-grained": FINE_GRAINED,
    "average: 11 sets": ("imagenet", *FINE_GRAINED),
    "imagenet-c": tuple(f"imagenet-c/{one}/{SEVERITY}" for one in CORRUPTIONS),
}


@functools.cache
def follower_experiments(model: str) -> dict[str, Experiment]:
    """Return an experiment per later method that has numbers for a model, and ``"followers"`` with all of them.

    Args:
        model: the model's name; numbers were published for ``"ViT-B/16"`` and ``"RN50"``.

    Returns:
        The experiments by name.

    >>> follower_experiments("ViT-B-16/openai")["zero"].columns["average: ood"]
    ('imagenet-a', 'imagenet-v2', 'imagenet-r', 'imagenet-sketch')
    """
    data = read_toml("followers.toml")
    groups: dict[tuple[str, str], list[Follower]] = {}
    for one in follower_numbers():
        if one.top1 and one.model == (backbone_key(model) or "ViT-B/16"):
            groups.setdefault((one.method, one.setting), []).append(one)
    rows: dict[str, list[Row]] = {}
    for (method, setting), several in groups.items():
        rows.setdefault(slug(method), []).append(_row(data, method, setting, several))
    found = {
        ALL: _experiment(ALL, "All published numbers of later methods", [row for own in rows.values() for row in own])
    }
    for name, own in rows.items():
        found[name] = _experiment(name, f"Published numbers of {own[0].name.partition(',')[0]}", own)
    return found


def _row(data: Mapping[str, Any], method: str, setting: str, several: list[Follower]) -> Row:
    numbers = {
        column: PaperNumber(value, None, None, one.source) for one in several for column, value in one.top1.items()
    }
    known = {column: number for column, number in numbers.items() if _members(column)}
    keys = {**data["methods"][method], **(data["settings"][setting] if setting else {})}
    if not known:
        keys.setdefault("why", f"which datasets {', '.join(numbers)} averages is not known")
    return make_row(f"{method}, {setting}" if setting else method, keys, preset=True, numbers=known or numbers)


def _experiment(name: str, title: str, rows: list[Row]) -> Experiment:
    published = {column: _members(column) for row in rows if not row.why for column in row.numbers}
    columns = {one: (one,) for members in published.values() for one in members} | published
    why = "" if columns else "; ".join(dict.fromkeys(row.why for row in rows))
    return Experiment(name, title, tuple(rows), columns, why=why)


def _members(column: str) -> tuple[str, ...]:
    return COLUMNS.get(column, (column,) if column in ENTRIES else ())
