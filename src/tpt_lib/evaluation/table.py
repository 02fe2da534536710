"""A small table that prints itself."""

from __future__ import annotations

from dataclasses import dataclass, field
from html import escape
from typing import Any

from tpt_lib.html_tables import html_table

__all__ = ["Table"]

LONGEST_RULE = 120  # characters; a column of sentences may be wider


@dataclass(frozen=True, eq=False, repr=False)
class Table:
    """Rows of named values that print aligned, as text and in notebooks.

    ``pandas.DataFrame(table.rows)`` converts it.

    Attributes:
        rows: one dict per row, all with the same keys, which are the columns. Missing values are None.
        note: units of the columns and costs shared by all rows, printed below them.
        shared: seconds per image of the work that all rows shared (``"views"``, ``"features"``).
        swept: the column that was varied, or None; ``plot_sweep`` draws the others over it.

    >>> Table(({"method": "zero-shot", "accuracy": 0.5}, {"method": "TPT", "accuracy": None}), note="Over 2 images.")
    method     accuracy
    -------------------
    zero-shot       0.5
    TPT               -
    Over 2 images.
    """

    rows: tuple[dict[str, Any], ...]
    note: str = ""
    shared: dict[str, float] = field(default_factory=dict)
    swept: str | None = None

    @property
    def columns(self) -> list[str]:
        """The names of the columns."""
        return list(self.rows[0]) if self.rows else []

    def column(self, name: str) -> list[Any]:
        """Return the values of one column, one per row.

        Returns:
            The values in the order of the rows.
        """
        return [row[name] for row in self.rows]

    def to_dict(self) -> dict[str, Any]:
        """Return the whole table in types that JSON has.

        Returns:
            The fields of the table by name.
        """
        return {"rows": [dict(row) for row in self.rows], "note": self.note, "shared": self.shared, "swept": self.swept}

    def to_markdown(self) -> str:
        """Return the table in Markdown, with its note.

        Returns:
            The text, with one line per row.
        """
        head, *body = self._cells()
        lines = [head, ["---" if left else "---:" for left in self._left()], *body]
        table = "\n".join(f"| {' | '.join(line)} |" for line in lines)
        return f"{table}\n\n{self.note}" if self.note else table

    def __repr__(self) -> str:
        cells = self._cells()
        widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
        lines = [
            "  ".join(
                cell.ljust(width) if left else cell.rjust(width)
                for cell, width, left in zip(line, widths, self._left(), strict=True)
            )
            for line in cells
        ]
        text = [line.rstrip() for line in lines]
        rule = "-" * max(len(text[0]), min(len(lines[0]), LONGEST_RULE))
        return "\n".join([text[0], rule, *text[1:], *([self.note] if self.note else [])])

    _repr_markdown_ = to_markdown

    def _repr_html_(self) -> str:
        head, *body = self._cells()
        table = html_table(head, body, left=self._left())
        return f'{table}<p style="white-space:pre-line">{escape(self.note)}</p>' if self.note else table

    def _left(self) -> list[bool]:
        """Return whether each column is aligned left: the first one, and columns of words. Formatted numbers are text too."""
        return [i == 0 or any(map(_is_word, self.column(name))) for i, name in enumerate(self.columns)]

    def _cells(self) -> list[list[str]]:
        return [self.columns, *([_shown(row[column]) for column in self.columns] for row in self.rows)]


def _is_word(value: Any) -> bool:
    return isinstance(value, str) and value[:1].isalpha()


def _shown(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:.3g}" if isinstance(value, float) else str(value)
