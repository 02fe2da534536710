"""Draw the matrix of figure 3."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tpt_lib.evaluation.table import Table
from tpt_lib.plots.figure import new_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["plot_improvement"]


def plot_improvement(table: Table) -> Figure:
    """Draw the heat map of figure 3: relative improvement over zero-shot, a row per source, the average on the right.

    Args:
        table: what ``paper.relative_improvement`` or ``paper.transfer_matrix`` returned.

    Returns:
        The figure.

    >>> table = tpt_lib.paper.relative_improvement({("dtd", "pets"): 40.0, ("TPT", "pets"): 60.0}, {"pets": 50.0})
    >>> [text.get_text() for text in plot_improvement(table).axes[0].texts]
    ['-0.20', '-0.20', '+0.20', '+0.20']
    """
    if table.columns[:1] != ["source"] or table.columns[-1:] != ["average"]:
        raise ValueError(
            f"plot_improvement: this table does not come from relative_improvement; its columns are {table.columns}"
        )
    columns = table.columns[1:]
    values = [[float("nan") if row[name] is None else row[name] for name in columns] for row in table.rows]
    limit = max((abs(v) for line in values for v in line if v == v), default=0.0) or 1.0
    figure = new_figure(1.9 + 0.52 * len(columns), 1.4 + 0.36 * len(values))
    axes = figure.subplots()
    image = axes.imshow(values, cmap="RdBu", vmin=-limit, vmax=limit, aspect="auto")
    for y, line in enumerate(values):
        for x, value in enumerate(line):
            if value == value:
                color = "white" if abs(value) > 0.6 * limit else "black"
                axes.text(x, y, f"{round(value, 2) + 0.0:+.2f}", ha="center", va="center", fontsize=6.5, color=color)
    axes.axvline(len(columns) - 1.5, color="white", linewidth=4)
    axes.set_xticks(range(len(columns)), columns, fontsize=7, rotation=40, ha="right", rotation_mode="anchor")
    axes.set_yticks(range(len(values)), table.column("source"), fontsize=7)
    axes.set_xlabel("target", fontsize=8)
    axes.set_ylabel("source", fontsize=8)
    axes.spines[:].set_visible(False)
    axes.tick_params(length=0)
    bar = figure.colorbar(image, ax=axes, fraction=0.03, pad=0.02)
    bar.ax.tick_params(labelsize=6)
    bar.outline.set_visible(False)
    return figure
