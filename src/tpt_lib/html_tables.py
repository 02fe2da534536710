"""Tables as HTML, for notebooks and for the pages of reports."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

__all__ = ["html_table"]


def html_table(head: Sequence[str], rows: Sequence[Sequence[str]], *, left: Sequence[bool] | None = None) -> str:
    """Return a table as HTML, with all texts escaped.

    Args:
        head: the names of the columns.
        rows: the cells of each row.
        left: whether to align each column left instead of right (default: all left).

    Returns:
        The ``<table>`` element, without any style except the alignment.

    >>> html_table(["a"], [["1 < 2"]])
    '<table><thead><tr><th scope="col">a</th></tr></thead><tbody><tr><td>1 &lt; 2</td></tr></tbody></table>'
    """
    aligned = [""] * len(head) if left is None else ["" if one else ' style="text-align:right"' for one in left]

    def line(cells: Sequence[str], kind: str) -> str:
        name = kind.partition(" ")[0]
        return "".join(f"<{kind}{style}>{escape(cell)}</{name}>" for cell, style in zip(cells, aligned, strict=True))

    body = "".join(f"<tr>{line(row, 'td')}</tr>" for row in rows)
    columns = line(head, 'th scope="col"')
    return f"<table><thead><tr>{columns}</tr></thead><tbody>{body}</tbody></table>"
