"""Show what a reproduction would do, and what is missing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tpt_lib.evaluation.run.describe_store import shown_bytes
from tpt_lib.models.protocol import ClipLike
from tpt_lib.paper.reproduction.definitions import Experiment
from tpt_lib.paper.reproduction.estimate import Estimate
from tpt_lib.paper.reproduction.jobs import Job, Learned
from tpt_lib.paper.reproduction.sources import Source
from tpt_lib.paper.reproduction.texts import duration

__all__ = ["Plan"]


@dataclass(frozen=True, eq=False, repr=False)
class Plan:
    """A plan of what ``reproduce`` would do, and of what is missing. It prints as text.

    Attributes:
        experiment: the rows, columns and seeds.
        model: the model.
        model_name: its name in run files.
        reward: the second CLIP of methods that need one, or None.
        reward_name: its name, or an empty string.
        learned: the learned prompts, by kind.
        out: the folder of the results of this model.
        sources: the datasets by label, including the missing ones.
        jobs: the runs.
        skipped: the reason for each row that is not run.
        estimate: what is left to do, its seconds and its bytes.
        free: free bytes on the disk of ``out``.
    """

    experiment: Experiment
    model: ClipLike
    model_name: str
    reward: ClipLike | None
    reward_name: str
    learned: Learned
    out: Path
    sources: Mapping[str, Source]
    jobs: tuple[Job, ...]
    skipped: Mapping[str, str]
    estimate: Estimate
    free: int

    @property
    def missing(self) -> list[Source]:
        """The datasets that cannot be used."""
        return [source for source in self.sources.values() if source.data is None]

    def lines(self) -> list[str]:
        """Return the plan as lines of text.

        Returns:
            The lines, for people to read.
        """
        there = [source for source in self.sources.values() if source.data is not None]
        rows = list(dict.fromkeys(job.row.name for job in self.jobs))
        lines = [f"{self.experiment.name}: {self.experiment.title}, with {self.model_name}"]
        lines.append(f"  rows: {'; '.join(rows) or 'none'}. Seeds {', '.join(map(str, self.experiment.seeds))}")
        lines += [f"  not run: {name}: {why}" for name, why in self.skipped.items()]
        for source in there:
            size = len(source.data or ())
            lines.append(
                f"  found: {source.label}, {size} {'problems' if source.of_problems else 'images'}" + _part(source)
            )
        lines += self._missing_lines()
        if not self.has_numbers:
            lines.append(
                f"  no numbers of this experiment were published for {self.model_name}, so nothing is compared"
            )
        left = self.estimate
        lines.append(
            f"  left to do: {left.images} images to encode, {duration(left.encoding)}; {left.rows} rows of "
            f"{len(self.jobs)} runs to evaluate, {duration(left.tuning)} of tuning"
        )
        lines.append(
            f"  disk: {shown_bytes(left.bytes)} are needed and {shown_bytes(self.free)} are free in {self.out}"
        )
        return lines

    @property
    def has_numbers(self) -> bool:
        """Whether a number was published for this model in any row that is run."""
        one = self.experiment
        pairs = [(row, column) for row in one.rows if row.name not in self.skipped for column in one.columns_of(row)]
        return any(one.number(row, column, self.model_name) for row, column in pairs)

    def _missing_lines(self) -> list[str]:
        """Return a line per dataset that cannot be used; splits of one dataset share a line."""
        groups: dict[str, list[Source]] = {}
        for source in self.missing:
            groups.setdefault(source.name, []).append(source)
        lines = []
        for first, *others in groups.values():
            more = f" and {len(others)} more splits" if others else ""
            problem = first.problem.split(". Expected")[0].removeprefix(f"{first.name}: ")
            lines.append(f"  missing: {first.label}{more}: {problem}. Wanted: {first.layout}")
        return lines

    def to_dict(self) -> dict[str, Any]:
        """Return the plan as JSON types.

        Returns:
            A dict of the experiment, its runs, what is missing, and what is left to do.
        """
        return {
            "experiment": self.experiment.name,
            "title": self.experiment.title,
            "model": self.model_name,
            "out": str(self.out),
            "runs": [str(job.out) for job in self.jobs],
            "parts": {one.label: one.part for one in self.sources.values() if one.part},
            "missing": {one.label: {"problem": one.problem, "layout": one.layout} for one in self.missing},
            "not_run": dict(self.skipped),
            "left": vars(self.estimate) | {"bytes": self.estimate.bytes},
            "free": self.free,
        }

    def __repr__(self) -> str:
        return "\n".join(self.lines())


def _part(source: Source) -> str:
    return f" ({source.part}: not compared)" if source.part else ""
