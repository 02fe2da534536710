"""What came of one or more runs, as tables beside the paper's numbers."""

from __future__ import annotations

import csv
import functools
import io
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from statistics import fmean
from typing import TYPE_CHECKING, Any

from tpt_lib.evaluation.metrics import SCORES, Outcomes, averages, mean_std, outcomes, scores
from tpt_lib.evaluation.published import backbone_key, find_number
from tpt_lib.evaluation.run_file import Run, merge_runs, read_run, truth_index
from tpt_lib.evaluation.significance import mcnemar
from tpt_lib.evaluation.table import Table

if TYPE_CHECKING:
    from pandas import DataFrame

__all__ = ["Report"]

PATH = str | os.PathLike[str]


@dataclass(frozen=True, eq=False, repr=False)
class Report:
    """Accuracy and calibration of methods on datasets. It prints as a table with the paper's numbers beside, where it has them.

    Convention: accuracies and calibration errors are in percent, entropies in nats. Samples that could not be read are left
    out of all of them and counted as errors. Deviations over seeds are sample standard deviations. The paper's numbers stand
    beside runs of its own models, CLIP's RN50 and ViT-B/16 with OpenAI's weights; runs with several seeds are
    compared with its means over seeds (tables 5 and 6) where it has them.

    Attributes:
        runs: what was run, one for each dataset and setting; ``Report.read`` reads them from files.
    """

    runs: tuple[Run, ...]

    def __post_init__(self) -> None:
        if not self.runs:
            raise ValueError("Report: there are no runs")
        known: dict[tuple[str, str, str], Run] = {}
        first: dict[tuple[str, str], Run] = {}
        for run in self.runs:
            other = first.setdefault((run.model, run.label), run)
            if any(other.header[name] != run.header[name] for name in ("classes", "n")):
                raise ValueError(
                    f"Report: two runs on {run.label} are not of the same samples: {_differences(other, run)}"
                )
            for method in run.header["methods"]:
                other = known.setdefault((run.model, run.label, method), run)
                if other is not run:
                    raise ValueError(
                        f"Report: two runs of {method!r} on {run.label} differ in {_differences(other, run)}; "
                        "report them apart, or give the method another name in one of them"
                    )

    @classmethod
    def read(cls, paths: PATH | Iterable[PATH]) -> Report:
        """The report of run files: of several datasets, of several methods, and of the shards of one run.

        Args:
            paths: one file or several.
        """
        files = [paths] if isinstance(paths, (str, os.PathLike)) else list(paths)
        return cls(merge_runs(read_run(path) for path in files))

    def outcomes(self) -> Iterator[tuple[Run, str, dict[int, Outcomes]]]:
        """For each run and method what it said under each seed, sample by sample."""
        for run in self.runs:
            of_seed: dict[int, list[Any]] = {}
            for row in run.rows:
                of_seed.setdefault(row["seed"], []).append(row)
            for method in run.header["methods"]:
                yield run, method, {seed: outcomes(rows, method, run.n_classes) for seed, rows in of_seed.items()}

    def rows(self) -> list[dict[str, Any]]:
        """A dict for each (model, dataset, method): numbers of samples, errors and seeds, the scores, and the paper's.

        A score has its mean over seeds under its name and its deviation under ``…_std``: ``top1``, ``top5``, ``ece15``,
        ``ece20``, ``entropy``. ``seconds`` are the method's own, an image. ``paper``, ``paper_std`` and ``paper_table`` are the
        published top-1 accuracy and where it stands. What there is not is None.
        """
        return [dict(row) for row in self._rows]

    @functools.cached_property
    def _rows(self) -> list[dict[str, Any]]:
        return [self._row(run, method, self._scores[run, method]) for run, method in self._scores]

    @functools.cached_property
    def _scores(self) -> dict[tuple[Run, str], dict[int, dict[str, float | None]]]:
        return {
            (run, method): {seed: scores(said) for seed, said in of_seeds.items()}
            for run, method, of_seeds in self.outcomes()
        }

    def _row(self, run: Run, method: str, of_seeds: dict[int, dict[str, float | None]]) -> dict[str, Any]:
        good = [row for row in run.rows if "error" not in row]
        row = {
            "model": run.model,
            "dataset": run.label,
            "method": method,
            "n": len({row["sample"] for row in good}),
            "errors": len({row["sample"] for row in run.rows if "error" in row}),
            "seeds": len(of_seeds),
        }
        for name in SCORES:
            row[name], row[f"{name}_std"] = mean_std([of_seed[name] for of_seed in of_seeds.values()])
        times = [row["seconds"][method] for row in good if method in row.get("seconds", {})]
        return {
            **row,
            "seconds": fmean(times) if times else None,
            **_paper(run.label, method, run.model, len(of_seeds)),
        }

    def averages(self) -> list[dict[str, Any]]:
        """The averages of the paper's tables, as far as all of their datasets are in the report.

        ``"average: imagenet"`` is over ImageNet and its four variants, ``"average: ood"`` over the variants,
        ``"average: fine-grained"`` over the ten sets of table 2, ``"average: bongard-hoi"`` over the four splits.
        """
        of_method: dict[tuple[str, str], dict[str, dict[int, float]]] = {}
        for (run, method), of_seeds in self._scores.items():
            known = {seed: of_seed["top1"] for seed, of_seed in of_seeds.items()}
            top1 = {seed: value for seed, value in known.items() if value is not None}
            of_method.setdefault((run.model, method), {})[run.label] = top1
        found = []
        for (model, method), accuracies in of_method.items():
            for name, of_seed in averages(accuracies).items():
                mean, std = mean_std(list(of_seed.values()))
                numbers = {"seeds": len(of_seed), "top1": mean, "top1_std": std}
                found.append(
                    {
                        "model": model,
                        "dataset": name,
                        "method": method,
                        **numbers,
                        **_paper(name, method, model, len(of_seed)),
                    }
                )
        return sorted(found, key=lambda row: row["dataset"])

    def compare(self, a: str, b: str) -> Table:
        """McNemar's exact test between two methods on the samples that both have, for each dataset and seed.

        Seeds are tested one by one: the same sample under another seed is no new sample.

        Args:
            a: a method.
            b: another.

        Returns:
            Rows with ``n``, how often ``both`` were right, ``only_a``, ``only_b``, ``neither``, and the two-sided ``p``.
        """
        methods = list(dict.fromkeys(method for run in self.runs for method in run.header["methods"]))
        for name in (a, b):
            if name not in methods:
                raise ValueError(f"compare: there is no method {name!r}; there are {', '.join(map(repr, methods))}")
        right: dict[tuple[str, str], dict[str, dict[tuple[int, int], bool]]] = {}
        for run in self.runs:
            of_methods = right.setdefault((run.model, run.label), {})
            for row in run.rows:
                for method in run.header["methods"] if "error" not in row else ():
                    verdict = row["methods"][method]["index"] == truth_index(row["truth"])
                    of_methods.setdefault(method, {})[row["seed"], row["sample"]] = verdict
        rows = []
        for (model, label), of_methods in right.items():
            if a not in of_methods or b not in of_methods:
                continue
            shared = [key for key in of_methods[a] if key in of_methods[b]]
            for seed in dict.fromkeys(seed for seed, _ in shared):
                pairs = [(of_methods[a][key], of_methods[b][key]) for key in shared if key[0] == seed]
                both, only_a, only_b, neither = (
                    pairs.count(kind) for kind in ((True, True), (True, False), (False, True), (False, False))
                )
                counts = {"both": both, "only_a": only_a, "only_b": only_b, "neither": neither}
                rows.append(
                    {
                        "model": model,
                        "dataset": label,
                        "seed": seed,
                        "n": len(pairs),
                        **counts,
                        "p": mcnemar(only_a, only_b),
                    }
                )
        if not rows:
            raise ValueError(f"compare: {a!r} and {b!r} share no samples of a dataset under the same seed")
        return Table(
            tuple(rows), f"Right by both, by {a} only (a), by {b} only (b), by neither; p: McNemar's exact test."
        )

    def table(self) -> Table:
        """The report as it prints: rounded, with deviations, and without the columns that no row has."""
        rows = [*self.rows(), *self.averages()]
        cells = [_cells(row) for row in rows]
        kept = [name for name in cells[0] if any(row[name] is not None for row in cells)]
        if len({row["model"] for row in rows}) == 1:
            kept.remove("model")
        if not any(row.get("errors") for row in rows):
            kept.remove("errors")
        return Table(tuple({name: row[name] for name in kept} for row in cells), "\n".join(self.notes()))

    def notes(self) -> list[str]:
        """What stands below the table: the paper's tables it cites, shared time, rows that are missing or hold errors."""
        rows = [*self.rows(), *self.averages()]
        notes = []
        if cited := sorted({row["paper_table"] for row in rows if row["paper_table"] is not None}):
            models = dict.fromkeys(filter(None, (backbone_key(row["model"]) for row in rows)))
            tables = f"table{'s' * (len(cited) > 1)} {', '.join(map(str, cited))}"
            notes.append(", ".join(["paper: top-1 of Shu et al., NeurIPS 2022", tables, *models]))
        for run in self.runs:
            of_name: dict[str, list[float]] = {}
            for row in run.rows:
                for name, seconds in row.get("seconds", {}).items():
                    of_name.setdefault(name, []).append(seconds)
            shared = [f"{name} {fmean(of):.3g} s" for name, of in of_name.items() if name not in run.header["methods"]]
            if shared:
                notes.append(f"{run.label}: all methods shared {', '.join(shared)} an image")
            wanted = run.header["n"] * len(run.header["seeds"])
            if len(run.rows) < wanted:
                notes.append(f"{run.label}: not finished, {len(run.rows)} of {wanted} rows")
            if errors := [row for row in run.rows if "error" in row]:
                first = f"sample {errors[0]['sample']}: {errors[0]['error']}"
                notes.append(f"{run.label}: {len(errors)} row(s) with an error are left out; the first is {first}")
            notes += run.notes
        return notes

    def to_markdown(self) -> str:
        """The table in Markdown, with its notes."""
        return self.table().to_markdown()

    def to_csv(self) -> str:
        """``rows`` as the text of a CSV file, not rounded; what there is not is empty."""
        file = io.StringIO()
        writer = csv.DictWriter(file, list(self._rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(self._rows)
        return file.getvalue()

    def to_pandas(self) -> DataFrame:
        """``rows`` as a pandas ``DataFrame``."""
        try:
            import pandas
        except ImportError as error:
            raise ImportError("to_pandas needs pandas: pip install pandas") from error
        return pandas.DataFrame(self.rows())

    def __repr__(self) -> str:
        return repr(self.table())

    _repr_markdown_ = to_markdown


def _paper(label: str, method: str, model: str, seeds: int) -> dict[str, Any]:
    entry = find_number(label, method, model, seeds=seeds)
    if entry is None:
        return dict.fromkeys(("paper", "paper_std", "paper_table"))
    return {"paper": entry.value, "paper_std": entry.std, "paper_table": entry.table}


def _cells(row: dict[str, Any]) -> dict[str, str | None]:
    def shown(name: str, digits: int) -> str | None:
        value, std = row.get(name), row.get(f"{name}_std")
        if value is None:
            return None
        return f"{value:.{digits}f}" + ("" if std is None else f" ± {std:.{digits}f}")

    return {
        "dataset": row["dataset"],
        "method": row["method"],
        "model": row["model"],
        "n": str(row["n"]) if "n" in row else None,
        "errors": str(row["errors"]) if "errors" in row else None,
        "top-1": shown("top1", 2),
        "paper": shown("paper", 2),
        "top-5": shown("top5", 2),
        "ECE, 15 bins": shown("ece15", 2),
        "ECE, 20 bins": shown("ece20", 2),
        "entropy": shown("entropy", 3),
        "s/image": None if row.get("seconds") is None else f"{row['seconds']:.3g}",
    }


def _differences(a: Run, b: Run) -> str:
    ours = {**a.header["settings"], **{name: a.header[name] for name in ("classes", "methods", "seeds", "n")}}
    theirs = {**b.header["settings"], **{name: b.header[name] for name in ("classes", "methods", "seeds", "n")}}
    names = [name for name in {**ours, **theirs} if ours.get(name) != theirs.get(name)]
    return "; ".join(f"{name}: {ours.get(name)!r} and {theirs.get(name)!r}" for name in names) or "their hash"
