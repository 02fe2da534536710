"""Define what can be reproduced: the rows and columns of the paper's tables and figures, with the settings of each row."""

from __future__ import annotations

import functools
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from tpt_lib.evaluation.metrics import averaged
from tpt_lib.evaluation.published import PaperNumber, find_number, paper_tables
from tpt_lib.evaluation.published_names import backbone_key, dataset_key
from tpt_lib.evaluation.table import Table
from tpt_lib.paper.reproduction.texts import did_you_mean

__all__ = ["Experiment", "Row", "find_experiment", "paper_experiments", "read_toml"]


@dataclass(frozen=True)
class Row:
    """One row of an experiment: a method with its settings.

    Attributes:
        name: its published name, which its numbers are looked up by.
        method: the name of the method in the registry; for Bongard problems that of the solver.
        settings: keywords of the method; ``fraction`` is that of the confidence selection.
        contexts: prompts of the row, if not those of the dataset: ``"coop"`` and ``"cocoop"`` are learned ones, ``"coop 2"``
            the second of several, ``"templates"`` OpenAI's 80. Predictions of several are averaged.
        views: number of views.
        recipe: recipe of the views (default: the dataset's).
        variants: recipe of the views of ImageNet-A, -V2, -R and -Sketch, if it differs.
        varies: what differs between the runs of an experiment with several seeds.
        steps: number of steps of prompt tuning per image, for the estimate of the time.
        reward: the published second model, for methods that need one.
        preset: whether to use its authors' settings for each dataset.
        note: how it may differ from what was published.
        why: why it cannot be run; empty if it can.
        numbers: its published numbers by column, if they are not in a table of the paper.
    """

    name: str
    method: str = ""
    settings: Mapping[str, Any] = field(default_factory=dict)
    contexts: tuple[str, ...] = ()
    views: int = 64
    recipe: str = ""
    variants: str = ""
    varies: Literal["views", "checkpoint", "nothing"] = "views"
    steps: int = 0
    reward: str = ""
    preset: bool = False
    note: str = ""
    why: str = ""
    numbers: Mapping[str, PaperNumber] = field(default_factory=dict)


@dataclass(frozen=True)
class Experiment:
    """A table or figure that can be reproduced, or the reason why this library cannot.

    Attributes:
        name: name that ``plan_experiment`` takes, such as ``"table1"``.
        title: its subject.
        rows: its rows.
        columns: for each column the datasets whose accuracies it averages, with their splits unless that is ``"test"``.
        seeds: seeds of its runs.
        table: number of the table of the paper that has its numbers, or None.
        why: why it cannot be run; empty if it can.
    """

    name: str
    title: str
    rows: tuple[Row, ...] = ()
    columns: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    seeds: tuple[int, ...] = (0,)
    table: int | None = None
    why: str = ""

    def columns_of(self, row: Row) -> tuple[str, ...]:
        """Return the columns of a row: all of them; or those with a published number of its own, and their datasets.

        Args:
            row: a row of this experiment.

        Returns:
            The names of the columns.
        """
        members = {member for column in row.numbers for member in self.columns.get(column, ())}
        return tuple(
            column
            for column, own in self.columns.items()
            if not row.numbers or column in row.numbers or (len(own) == 1 and own[0] in members)
        )

    def datasets_of(self, row: Row) -> tuple[str, ...]:
        """Return the datasets of a row's columns, each once.

        Args:
            row: a row of this experiment.

        Returns:
            The names of the datasets.
        """
        return tuple(dict.fromkeys(member for column in self.columns_of(row) for member in self.columns[column]))

    def number(self, row: Row, column: str, model: str) -> PaperNumber | None:
        """Return the published number of a row with a model.

        Args:
            row: a row of this experiment.
            column: name of a column.
            model: name of the model.

        Returns:
            The published number, or None if the paper has none.
        """
        if backbone_key(model) is None:
            return None
        if row.numbers or self.table is None:
            return row.numbers.get(column)
        return find_number(column, row.name, model, self.table)


@functools.cache
def paper_experiments() -> dict[str, Experiment]:
    """Return the tables and figures of the paper by name.

    >>> paper_experiments()["table4"].rows[1].settings
    {'fraction': 1.0}
    """
    data = read_toml("experiments.toml")
    rows = {name: make_row(name, keys) for name, keys in data["rows"].items()}
    return {name: _experiment(name, keys, rows) for name, keys in data["experiments"].items()}


def find_experiment(name: str, known: Mapping[str, Experiment]) -> Experiment:
    """Return an experiment that can be run.

    Args:
        name: its name.
        known: all experiments by name.

    Returns:
        The experiment.

    Raises:
        ValueError: if there is no experiment of that name, or it cannot be run.
    """
    key = name.lower().replace(" ", "").replace("_", "")
    if key not in known:
        raise ValueError(f"plan_experiment: there is no experiment {name!r}{did_you_mean(key, known)}")
    if known[key].why:
        raise ValueError(f"plan_experiment: {key} ({known[key].title}) is not run: {known[key].why}")
    return known[key]


def listed(known: Mapping[str, Experiment]) -> Table:
    """Return a table with a row per experiment."""
    rows = []
    for one in known.values():
        run = [row.name for row in one.rows if not row.why]
        what = f"not run: {one.why}" if one.why else f"{'; '.join(run)}. {len(_datasets(one))} datasets"
        rows.append({"name": one.name, "title": one.title, "what is run": what})
    return Table(tuple(rows))


def read_toml(file: str) -> dict[str, Any]:
    """Return the content of a file of definitions."""
    return tomllib.loads(Path(__file__).with_name(file).read_text(encoding="utf-8"))


def make_row(name: str, keys: Mapping[str, Any], **more: Any) -> Row:
    """Return a row from its keys in a file."""
    given: Any = {key: tuple(value) if isinstance(value, list) else value for key, value in {**keys, **more}.items()}
    return Row(name, **given)


def _experiment(name: str, keys: Mapping[str, Any], rows: Mapping[str, Row]) -> Experiment:
    given = {**keys, "rows": tuple(rows[row] for row in keys.get("rows", ())), "seeds": tuple(keys.get("seeds", (0,)))}
    columns = {} if "table" not in keys else _columns(paper_tables()[keys["table"] - 1].columns)
    return Experiment(name, columns=columns, **given)


def _columns(names: tuple[str, ...]) -> dict[str, tuple[str, ...]]:
    """Return the datasets of each column of a table."""
    spelled = {dataset_key(name): name for name in names}
    members = averaged()
    return {name: tuple(spelled[one] for one in members[name]) if name in members else (name,) for name in names}


def _datasets(experiment: Experiment) -> set[str]:
    return {member for members in experiment.columns.values() for member in members}
