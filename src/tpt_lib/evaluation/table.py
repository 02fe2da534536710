"""A small table that prints itself, and the measuring of what stands in it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

__all__ = ["Table"]


@dataclass(frozen=True, eq=False, repr=False)
class Table:
    """Rows of named values. It prints aligned, shows itself in notebooks, and ``pandas.DataFrame(table.rows)`` takes it.

    Attributes:
        rows: a dict a row, all with the same keys, which are the columns. A value that there is not is None.
        note: what the columns are measured in, and what all rows shared.
        shared: seconds an image that all rows shared (``"views"``, ``"features"``), where they shared any.
        swept: the column that was varied, if one was; ``plot_sweep`` draws the others over it.
    """

    rows: tuple[dict[str, Any], ...]
    note: str = ""
    shared: dict[str, float] = field(default_factory=dict)
    swept: str | None = None

    @property
    def columns(self) -> list[str]:
        return list(self.rows[0]) if self.rows else []

    def column(self, name: str) -> list[Any]:
        """One value a row."""
        return [row[name] for row in self.rows]

    def to_dict(self) -> dict[str, Any]:
        """All of it in types that JSON has."""
        return {"rows": [dict(row) for row in self.rows], "note": self.note, "shared": self.shared, "swept": self.swept}

    def to_markdown(self) -> str:
        head, *body = self._cells()
        lines = [head, ["---" if i == 0 else "---:" for i in range(len(head))], *body]
        table = "\n".join(f"| {' | '.join(line)} |" for line in lines)
        return f"{table}\n\n{self.note}" if self.note else table

    def __repr__(self) -> str:
        cells = self._cells()
        widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
        lines = [
            "  ".join(
                cell.rjust(width) if i else cell.ljust(width)
                for i, (cell, width) in enumerate(zip(line, widths, strict=True))
            )
            for line in cells
        ]
        return "\n".join([lines[0], "-" * len(lines[0]), *lines[1:], *([self.note] if self.note else [])])

    _repr_markdown_ = to_markdown

    def _cells(self) -> list[list[str]]:
        return [self.columns, *([_shown(row[column]) for column in self.columns] for row in self.rows)]


def _shown(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:.3g}" if isinstance(value, float) else str(value)
