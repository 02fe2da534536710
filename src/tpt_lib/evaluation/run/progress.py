"""A progress bar that shows the accuracy so far."""

from __future__ import annotations

from collections.abc import Iterable

from tpt_lib.evaluation.run_file import Row, RunFile, truth_index

__all__ = ["ProgressBar"]


class ProgressBar:
    """A progress bar with every method's accuracy so far. Use it as a context manager.

    Args:
        run: the run file; its rows are done.
        total: number of rows of the finished run.
        progress: whether to show the bar; by default (None) only on a terminal.
    """

    def __init__(self, run: RunFile, total: int, progress: bool | None) -> None:
        from tqdm import tqdm

        self.right: dict[str, int] = {}
        self.seen = 0
        hidden = None if progress is None else not progress
        self.bar = tqdm(total=total, initial=len(run.rows), desc=run.header["dataset"], unit="image", disable=hidden)
        self._count(run.rows)

    def add(self, rows: list[Row]) -> None:
        """Count new rows and redraw."""
        self._count(rows)
        accuracies = {name: f"{right / max(1, self.seen):.1%}" for name, right in self.right.items()}
        self.bar.set_postfix(accuracies, refresh=False)
        self.bar.update(len(rows))

    def _count(self, rows: Iterable[Row]) -> None:
        for row in rows:
            truth = row["truth"]
            if "error" in row or truth is None:
                continue
            self.seen += 1
            for name, result in row["methods"].items():
                self.right[name] = self.right.get(name, 0) + (result["index"] == truth_index(truth))

    def __enter__(self) -> ProgressBar:
        return self

    def __exit__(self, *_: object) -> None:
        self.bar.close()
