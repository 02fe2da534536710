"""Format the rows of a report: a table with its citations, and a CSV file."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from typing import Any

from tpt_lib.evaluation.published_names import backbone_key
from tpt_lib.evaluation.table import Table

__all__ = ["citations", "csv_text", "report_table"]


def report_table(rows: Sequence[Mapping[str, Any]], notes: Sequence[str]) -> Table:
    """Return rows and averages of a report as it prints: rounded, with deviations, without empty columns.

    Args:
        rows: as ``Report.rows`` and ``Report.averages`` return them, at least one.
        notes: the lines below the table.
    """
    cells = [_cells(row) for row in rows]
    kept = [name for name in cells[0] if any(row[name] is not None for row in cells)]
    if len({row["model"] for row in rows}) == 1:
        kept.remove("model")
    if not any(row.get("errors") for row in rows):
        kept.remove("errors")
    return Table(tuple({name: row[name] for name in kept} for row in cells), "\n".join(notes))


def citations(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return notes that say where the published numbers in the rows are from."""
    notes = []
    if cited := sorted({row["paper_table"] for row in rows if row["paper_table"] is not None}):
        models = dict.fromkeys(filter(None, (backbone_key(row["model"]) for row in rows)))
        tables = f"table{'s' * (len(cited) > 1)} {', '.join(map(str, cited))}"
        notes.append(", ".join(["paper: top-1 of Shu et al., NeurIPS 2022", tables, *models]))
    later = dict.fromkeys((row["method"], row["paper_source"]) for row in rows if row["paper_source"])
    return [*notes, *(f"paper: top-1 of {method} from {source}" for method, source in later)]


def csv_text(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return rows as the text of a CSV file, with a line of column names."""
    file = io.StringIO()
    writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return file.getvalue()


def _cells(row: Mapping[str, Any]) -> dict[str, str | None]:
    def rounded(name: str, digits: int) -> str | None:
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
        "top-1": rounded("top1", 2),
        "paper": rounded("paper", 2),
        "top-5": rounded("top5", 2),
        "ECE, 15 bins": rounded("ece15", 2),
        "ECE, 20 bins": rounded("ece20", 2),
        "entropy": rounded("entropy", 3),
        "s/image": None if row.get("seconds") is None else f"{row['seconds']:.3g}",
    }
