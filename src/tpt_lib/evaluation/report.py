"""Summarize run files in tables next to the paper's numbers."""

from __future__ import annotations

import functools
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tpt_lib.evaluation.data.eval_set import EvalSet
from tpt_lib.evaluation.metrics import Outcomes, scores
from tpt_lib.evaluation.page.thumbnails import image_finder
from tpt_lib.evaluation.page.write import report_page
from tpt_lib.evaluation.report_table import citations, csv_text, report_table
from tpt_lib.evaluation.run_file import Run, merge_runs, read_run
from tpt_lib.evaluation.run_summary import average_rows, is_probability, outcomes_by_seed, run_notes, summarize
from tpt_lib.evaluation.several_runs import check_comparable, compare_methods
from tpt_lib.evaluation.table import Table
from tpt_lib.features.whole_file import write_whole

if TYPE_CHECKING:
    from pandas import DataFrame

__all__ = ["Report"]

PATH = str | os.PathLike[str]


@dataclass(frozen=True, eq=False, repr=False)
class Report:
    """Accuracy and calibration of methods on datasets, printed as a table next to the paper's numbers.

    Convention: accuracies and calibration errors are in percent, entropies in nats. Samples that could not be read are
    left out of all of them and counted as errors. Deviations over seeds are sample standard deviations. The paper's
    numbers are shown for its own models, CLIP's RN50 and ViT-B/16 with OpenAI's weights; runs with several seeds are
    compared with its means over seeds (tables 5 and 6), where it has them.

    Attributes:
        runs: one run for each dataset and setting; ``Report.read`` reads them from files.
    """

    runs: tuple[Run, ...]

    def __post_init__(self) -> None:
        if not self.runs:
            raise ValueError("Report: runs must not be empty")
        check_comparable(self.runs)

    @classmethod
    def read(cls, paths: PATH | Iterable[PATH]) -> Report:
        """Read run files into a report.

        Args:
            paths: one file or several: of several datasets, of several methods, or the parts of one run.

        Returns:
            A report on all of the runs.
        """
        files = [paths] if isinstance(paths, (str, os.PathLike)) else list(paths)
        return cls(merge_runs(read_run(path) for path in files))

    def outcomes(self) -> Iterator[tuple[Run, str, dict[int, Outcomes]]]:
        """Yield each run and method with the method's answers under each seed, sample by sample.

        Yields:
            Triples of a run, a method and, for each seed, the answers.
        """
        for run in self.runs:
            for method in run.header["methods"]:
                yield run, method, outcomes_by_seed(run, method)

    def rows(self) -> list[dict[str, Any]]:
        """Return one dict per (model, dataset, method).

        Returns:
            Dicts with the numbers of samples ``n``, ``errors`` and ``seeds``; the mean over seeds of the scores ``top1``,
            ``top5``, ``ece15``, ``ece20`` and ``entropy``, and their deviations under ``…_std``; the method's own
            ``seconds`` per image; and the published top-1 accuracy as ``paper``, ``paper_std``, ``paper_table`` and, for
            methods after TPT, ``paper_source``. Missing values are None, as are the calibration errors ``ece15`` and
            ``ece20`` of methods whose confidences are shares of votes.
        """
        return [dict(row) for row in self._rows]

    @functools.cached_property
    def _rows(self) -> list[dict[str, Any]]:
        return [summarize(run, method, by_seed) for (run, method), by_seed in self._scores.items()]

    @functools.cached_property
    def _scores(self) -> dict[tuple[Run, str], dict[int, dict[str, float | None]]]:
        return {
            (run, method): {
                seed: scores(answers, calibrated=is_probability(run, method)) for seed, answers in by_seed.items()
            }
            for run, method, by_seed in self.outcomes()
        }

    def averages(self) -> list[dict[str, Any]]:
        """Return the averages of the paper's tables whose datasets are all in the report.

        ``"average: imagenet"`` is over ImageNet and its four variants, ``"average: ood"`` over the variants,
        ``"average: fine-grained"`` over the ten sets of table 2, ``"average: bongard-hoi"`` over the four splits.

        Returns:
            One dict per model, average and method: ``seeds``, ``top1``, ``top1_std`` and the published number, as in ``rows``.
        """
        return average_rows(self._scores)

    def compare(self, a: str, b: str) -> Table:
        """Compare two methods by McNemar's exact test, for each dataset and seed, on the samples that both have.

        Seeds are tested one by one, as the same sample under another seed is not an independent sample.

        Args:
            a: name of a method.
            b: name of another.

        Returns:
            Rows with the number ``n`` of samples, how many ``both``, ``only_a``, ``only_b`` and ``neither`` got right,
            and the two-sided ``p``.
        """
        return compare_methods(self.runs, a, b)

    def table(self) -> Table:
        """Return the report as it prints: rounded, with deviations, without empty columns.

        Returns:
            The table.
        """
        return report_table([*self._rows, *self.averages()], self.notes())

    def notes(self) -> list[str]:
        """Return the notes below the table: cited tables of the paper, shared time, missing rows, and errors.

        Returns:
            The notes, one line each.
        """
        cited = citations([*self._rows, *self.averages()])
        return [*cited, *(note for run in self.runs for note in run_notes(run))]

    def to_markdown(self) -> str:
        """Return the table in Markdown, with its notes.

        Returns:
            The text of the table and its notes.
        """
        return self.table().to_markdown()

    def to_csv(self) -> str:
        """Return ``rows`` as the text of a CSV file, not rounded. Missing values are empty.

        Returns:
            The text of the file, with a line of column names.
        """
        return csv_text(self._rows)

    def to_html(self, out: PATH, *, dataset: EvalSet | PATH | None = None, thumbnails: int = 200) -> None:
        """Write the report as one HTML file that needs no network and no server.

        It has the tables, the charts, and a gallery of the images that one method got right and another wrong.

        Args:
            out: destination; written atomically.
            dataset: where the images are, for thumbnails: the dataset that was evaluated, or a folder that the paths of the
                runs are relative to (default None: the gallery has text only).
            thumbnails: number of thumbnails to embed at most, spread over the gallery (default 200). The page says how many.

        Raises:
            FileNotFoundError: if there is no such folder.
            ValueError: if ``out`` is not a file, ``thumbnails`` is negative, or the images are not those that were evaluated.

        >>> data = tpt_lib.EvalSet("noise", [(torch.rand(3, 40, 60), 0)], ("cat", "dog"))
        >>> report = tpt_lib.evaluate(model, data, "zero_shot", out=f"{folder}/run.jsonl", n_views=1)
        >>> report.to_html(f"{folder}/report.html", dataset=data)
        """
        file = Path(out)
        if file.is_dir() or not file.parent.is_dir():
            what = "is a folder" if file.is_dir() else "is in a folder that does not exist"
            raise ValueError(f"to_html: {str(out)!r} {what}; pass the name of a file, such as 'report.html'")
        if type(thumbnails) is not int or thumbnails < 0:
            raise ValueError(f"to_html: thumbnails must be an int, 0 or more, but got {thumbnails!r}")
        find = image_finder(dataset, self.runs)
        page = report_page(self.table(), self.rows(), self.outcomes(), self.runs, find, thumbnails)
        write_whole(file, page.encode("utf-8", "replace"))

    def to_pandas(self) -> DataFrame:
        """Return ``rows`` as a pandas ``DataFrame``.

        Returns:
            One row per dict of ``rows``.
        """
        try:
            import pandas
        except ImportError as error:
            raise ImportError('to_pandas needs pandas: pip install "tpt_lib[pandas]"') from error
        return pandas.DataFrame(self.rows())

    def __repr__(self) -> str:
        return repr(self.table())

    _repr_markdown_ = to_markdown

    def _repr_html_(self) -> str:
        return self.table()._repr_html_()
