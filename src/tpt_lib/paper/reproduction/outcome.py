"""Compare the accuracies of a reproduction with the published ones."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from tpt_lib.evaluation.metrics import mean_std
from tpt_lib.evaluation.published_names import model_key
from tpt_lib.evaluation.table import Table
from tpt_lib.paper.reproduction.definitions import Row
from tpt_lib.paper.reproduction.jobs import Job
from tpt_lib.paper.reproduction.page import page
from tpt_lib.paper.reproduction.plan import Plan
from tpt_lib.types import PathLike

__all__ = ["Reproduction", "Result", "interval"]

Z = 1.96  # of a 95 % interval
ROUNDING = 0.005  # published accuracies have two decimals
NOTE = (
    "ours: top-1 in percent, with the deviation over seeds if there are several; interval: 95 %, over images like these. "
    "Within: the published number is in the interval, widened by its deviation if it has one. It was measured on the same "
    "images, so a faithful run is mostly closer."
)


@dataclass(frozen=True)
class Result:
    """The accuracy of one run in percent, its number of images, and the number of images that could not be used."""

    job: Job
    top1: float | None
    n: int
    errors: int


@dataclass(frozen=True, eq=False, repr=False)
class Reproduction:
    """Accuracies of an experiment next to the published ones. It prints as a table.

    Attributes:
        plan: what was planned.
        results: the accuracy of every run.
    """

    plan: Plan
    results: tuple[Result, ...]

    @property
    def page(self) -> Path:
        """The HTML page that ``reproduce`` writes."""
        return self.plan.out / f"{self.plan.experiment.name}.html"

    def rows(self) -> list[dict[str, Any]]:
        """Return one dict per row and column of the experiment that could be run.

        Returns:
            Dicts with ``method``, ``dataset``, the number of images ``n``, ``seeds``, ``ours`` with ``std``, the interval
            ``low`` to ``high``, ``paper`` with ``paper_std`` and ``source``, and ``verdict``: ``"within"``, ``"outside"``,
            ``"not compared: …"``, or ``""`` if no number was published. Missing values are None.
        """
        experiment = self.plan.experiment
        found = []
        for row in experiment.rows:
            for column in experiment.columns_of(row) if row.name not in self.plan.skipped else ():
                members = [self._of(row, label) for label in experiment.columns[column]]
                if all(members) and all(one.top1 is not None for own in members for one in own):
                    found.append({"method": row.name, "dataset": column, **self._compared(row, column, members)})
        return found

    def table(self) -> Table:
        """Return the rows as they print: rounded.

        Returns:
            The table.
        """
        return Table(tuple(map(_cells, self.rows())), "\n".join([NOTE, *self.notes()]))

    def notes(self) -> list[str]:
        """Return how rows may differ from what was published, where the numbers come from, and how many are within.

        Returns:
            The notes, one line each.
        """
        rows = self.rows()
        shown = {row["method"] for row in rows}
        notes = [f"{row.name}: {row.note}" for row in self.plan.experiment.rows if row.note and row.name in shown]
        sources = dict.fromkeys((row["method"], row["source"]) for row in rows if row["source"])
        notes += [f"{method}: published in: {source}" for method, source in sources]
        verdicts = [row["verdict"] for row in rows]
        notes.append(f"{verdicts.count('within')} within, {verdicts.count('outside')} outside")
        return notes

    def to_html(self, path: PathLike) -> None:
        """Write the table and the plan as one HTML page that needs no other file.

        Args:
            path: destination; written atomically.
        """
        destination, part = Path(path), Path(f"{path}.part")
        destination.parent.mkdir(parents=True, exist_ok=True)
        text = page(f"{self.plan.experiment.name}: {self.plan.experiment.title}", self.rows(), [NOTE, *self.notes()],
                    self.plan.lines())  # fmt: skip
        part.write_text(text, encoding="utf-8")
        part.replace(destination)

    def to_dict(self) -> dict[str, Any]:
        """Return the result as JSON types.

        Returns:
            A dict with the keys ``rows`` and ``notes``.
        """
        return {"rows": self.rows(), "notes": self.notes()}

    def __repr__(self) -> str:
        return repr(self.table())

    def _of(self, row: Row, label: str) -> list[Result]:
        return [one for one in self.results if one.job.row.name == row.name and one.job.source.label == label]

    def _compared(self, row: Row, column: str, members: Sequence[Sequence[Result]]) -> dict[str, Any]:
        trials = [fmean(one.top1 or 0.0 for one in each) for each in zip(*members, strict=True)]
        ours, std = mean_std(trials)
        assert ours is not None
        counts = [min(one.n for one in own) for own in members]
        low, high = interval([fmean(one.top1 or 0.0 for one in own) for own in members], counts)
        number = self.plan.experiment.number(row, column, self.plan.model_name)
        found = {"n": sum(counts), "seeds": len(trials), "ours": ours, "std": std, "low": low, "high": high}
        if number is None:
            return {**found, "paper": None, "paper_std": None, "source": None, "verdict": ""}
        differs = self._other_reward(row) or _differs(members)
        said = verdict(ours, low, high, number.value, number.std, differs)
        return {**found, "paper": number.value, "paper_std": number.std, "source": number.source, "verdict": said}

    def _other_reward(self, row: Row) -> str:
        """Return how the second model differs from the published one, or an empty string."""
        name = self.plan.reward_name
        return (
            f"the reward is {name}, not {row.reward}" if row.reward and model_key(name) != model_key(row.reward) else ""
        )


def verdict(ours: float, low: float, high: float, published: float, std: float | None, differs: str = "") -> str:
    """Return whether a published accuracy is in the interval of ours, or why they cannot be compared.

    Args:
        ours: our accuracy in percent.
        low: lower end of its interval.
        high: upper end of its interval.
        published: the published accuracy.
        std: its standard deviation over seeds, which widens the interval, or None.
        differs: how the images differ from those of the published number (default: they do not).

    Returns:
        ``"within"``, ``"outside"`` or ``"not compared: …"``.

    >>> verdict(60.7, 60.3, 61.1, 60.9, None), verdict(60.7, 60.3, 61.1, 61.5, None), verdict(60.7, 60.3, 61.1, 61.5, 0.5)
    ('within', 'outside', 'within')
    >>> verdict(60.7, 50.0, 70.0, 60.7, None, "9 of 50 images")
    'not compared: 9 of 50 images'
    """
    if differs:
        return f"not compared: {differs}"
    room = high - ours if published > ours else ours - low
    return "within" if abs(published - ours) <= math.hypot(room, Z * (std or 0.0)) + ROUNDING else "outside"


def interval(accuracies: Sequence[float], counts: Sequence[int]) -> tuple[float, float]:
    """Return the 95 % interval of the mean of accuracies on different images: Wilson's for one, the normal one for several.

    Args:
        accuracies: accuracies in percent.
        counts: number of images of each.

    Returns:
        The lower and the upper bound in percent.

    >>> [round(bound, 1) for bound in interval([50.0], [100])], [round(bound, 2) for bound in interval([50.0] * 4, [100] * 4)]
    ([40.4, 59.6], [45.1, 54.9])
    """
    shares = [accuracy / 100 for accuracy in accuracies]
    if len(shares) == 1:
        (p,), (n,) = shares, counts
        middle, half = p + Z**2 / (2 * n), Z * math.sqrt(p * (1 - p) / n + Z**2 / (4 * n**2))
        return 100 * max(0.0, middle - half) / (1 + Z**2 / n), 100 * min(1.0, (middle + half) / (1 + Z**2 / n))
    half = Z * math.sqrt(sum(p * (1 - p) / n for p, n in zip(shares, counts, strict=True))) / len(shares)
    return 100 * max(0.0, fmean(shares) - half), 100 * min(1.0, fmean(shares) + half)


def _differs(members: Sequence[Sequence[Result]]) -> str:
    """Return how the images differ from those of the published number, or an empty string."""
    for own in members:
        name = f"{own[0].job.source.label}: " if len(members) > 1 else ""
        if own[0].job.source.part:
            return f"{name}{own[0].job.source.part}"
        if errors := max(one.errors for one in own):
            return f"{name}{errors} images could not be used"
    return ""


def _cells(row: dict[str, Any]) -> dict[str, Any]:
    def shown(value: float | None, std: float | None) -> str | None:
        return None if value is None else f"{value:.2f}" + ("" if std is None else f" ± {std:.2f}")

    return {
        "method": row["method"],
        "dataset": row["dataset"],
        "n": row["n"],
        "ours": shown(row["ours"], row["std"]),
        "interval": f"{row['low']:.2f}-{row['high']:.2f}",
        "published": shown(row["paper"], row["paper_std"]),
        "verdict": row["verdict"],
    }
