"""A progress bar with the accuracy so far."""

from __future__ import annotations

from collections.abc import Iterable

from tpt_lib.evaluation.run.writing import Row, RunFile
from tpt_lib.evaluation.run_file import truth_index


class Bar:
    """A progress bar with the accuracy so far of every method."""

    def __init__(self, run: RunFile, total: int, progress: bool | None) -> None:
        from tqdm import tqdm

        self.right: dict[str, int] = {}
        self.seen = 0
        hidden = None if progress is None else not progress
        self.bar = tqdm(total=total, initial=len(run.rows), desc=run.header["dataset"], unit="image", disable=hidden)
        self._count(run.rows)

    def _count(self, rows: Iterable[Row]) -> None:
        for row in rows:
            self.seen += "methods" in row
            for name, result in row.get("methods", {}).items():
                self.right[name] = self.right.get(name, 0) + (result["index"] == truth_index(row["truth"]))

    def add(self, rows: list[Row]) -> None:
        self._count(rows)
        self.bar.set_postfix(
            {name: f"{right / max(1, self.seen):.1%}" for name, right in self.right.items()}, refresh=False
        )
        self.bar.update(len(rows))

    def __enter__(self) -> Bar:
        return self

    def __exit__(self, *_: object) -> None:
        self.bar.close()
