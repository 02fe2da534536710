"""Write the result of a reproduction as one HTML page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

__all__ = ["page"]

STYLE = """
body { font: 15px/1.45 system-ui, sans-serif; margin: 2em; color: #222; background: #fff }
table { border-collapse: collapse }
th, td { padding: .35em .7em; border-bottom: 1px solid #ddd; text-align: left; vertical-align: top; white-space: nowrap }
small { color: #555 } .within small b { color: #176b2c } .outside small b { color: #a31515 }
pre { background: #f6f6f6; padding: 1em; overflow-x: auto; white-space: pre-wrap }
"""


def page(title: str, rows: Sequence[Mapping[str, Any]], notes: Sequence[str], plan: Sequence[str]) -> str:
    """Return a page that needs no other file: a row per method, a column per dataset, ours above the published number.

    Args:
        title: the title.
        rows: what ``Reproduction.rows`` returned.
        notes: lines below the table.
        plan: lines of the plan.

    Returns:
        The HTML.
    """
    methods = dict.fromkeys(row["method"] for row in rows)
    columns = dict.fromkeys(row["dataset"] for row in rows)
    cells = {(row["method"], row["dataset"]): row for row in rows}
    head = "".join(f"<th>{escape(column)}</th>" for column in columns)
    body = "\n".join(
        f"<tr><th>{escape(method)}</th>{''.join(_cell(cells.get((method, column))) for column in columns)}</tr>"
        for method in methods
    )
    listed = "\n".join(f"<li>{escape(note)}</li>" for note in notes)
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<title>{escape(title)}</title>
<style>{STYLE}</style>
</head>
<body>
<h1>{escape(title)}</h1>
<table>
<thead><tr><th></th>{head}</tr></thead>
<tbody>
{body}
</tbody>
</table>
<ul>
{listed}
</ul>
<h2>Before the run</h2>
<pre>{escape(chr(10).join(plan))}</pre>
</body>
</html>
"""


def _cell(row: Mapping[str, Any] | None) -> str:
    if row is None:
        return "<td>-</td>"
    deviation = "" if row["std"] is None else f" ± {row['std']:.2f}"
    lines = [f"{row['ours']:.2f}{deviation}", f"<small>{row['low']:.2f}-{row['high']:.2f}</small>"]
    if row["paper"] is not None:
        theirs = "" if row["paper_std"] is None else f" ± {row['paper_std']:.2f}"
        lines.append(f"<small>published {row['paper']:.2f}{theirs}</small>")
    lines.append(f"<small><b>{escape(row['verdict'])}</b></small>")
    kind = row["verdict"] if row["verdict"] in ("within", "outside") else "other"
    return f'<td class="{kind}">{"<br>".join(lines)}</td>'
