"""Draw the accuracy and the cost of methods."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tpt_lib.evaluation.table import Table
from tpt_lib.plots.figure import AFTER, BEFORE, new_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["plot_methods"]

BASELINE = "zero-shot"
NEAR = 8  # distance in points up to which no line connects a name and its point
DIRECTIONS = ((1, 0), (0, 1), (0, -1), (-1, 0), (1, 1), (1, -1), (-1, 1), (-1, -1))
PLACES = [(radius * x, radius * y) for radius in (6, 14, 22, 32, 44) for x, y in DIRECTIONS]


def plot_methods(table: Table) -> Figure:
    """Draw accuracy over cost, one point per method, with zero-shot as a line.

    Args:
        table: what ``compare`` returned for images with labels. Cost is its ``seconds`` per image, of the method alone; views
            and features are shared by all.

    Returns:
        The figure.

    Raises:
        ValueError: if the table has no accuracies, or does not come from ``compare``.

    >>> images = torch.rand(2, 3, 40, 60)
    >>> table = tpt_lib.compare(model, images, ["cat", "dog"], labels=[0, 1], methods=["zero_shot", "tpt"], n_views=4)
    >>> sorted(text.get_text() for text in plot_methods(table).axes[0].texts if text.get_text())
    ['TPT', 'zero-shot']
    """
    rows = [row for row in table.rows if row.get("accuracy") is not None and row.get("seconds") is not None]
    if "method" not in table.columns or not rows:
        raise ValueError(
            "plot_methods: table must be what compare returned for images with labels, with the columns method, accuracy and "
            f"seconds; its columns are {table.columns}"
        )
    names = [row["method"] for row in rows]
    costs, accuracies = [1000 * row["seconds"] for row in rows], [100 * row["accuracy"] for row in rows]
    figure = new_figure(6.0, 4.0)
    axes = figure.subplots()
    axes.set(xscale="log", xlabel="ms per image, without views and features", ylabel="accuracy (%)")
    axes.margins(0.15)
    axes.scatter(costs, accuracies, s=20, color=[BEFORE if name == BASELINE else AFTER for name in names])
    lines = [accuracies[names.index(BASELINE)]] if BASELINE in names else []
    for at in lines:
        axes.axhline(at, color=BEFORE, linewidth=1, linestyle="--", zorder=0)
    axes.spines[["top", "right"]].set_visible(False)
    figure.draw_without_rendering()  # sets the positions of everything
    _label(axes, names, list(zip(costs, accuracies, strict=True)), lines)
    return figure


def _label(axes: Any, names: list[str], points: list[tuple[float, float]], lines: list[float]) -> None:
    """Write each name next to its point, where it covers no other name, no point and no line."""
    from matplotlib.transforms import Bbox

    at = [axes.transData.transform(point) for point in points]
    taken = [Bbox.from_extents(x - 6, y - 6, x + 6, y + 6) for x, y in at]
    heights = [axes.transData.transform((points[0][0], line))[1] for line in lines]
    taken += [Bbox.from_extents(axes.bbox.x0, y - 1, axes.bbox.x1, y + 1) for y in heights]
    for name, point in zip(names, points, strict=True):
        for x, y in PLACES:
            across, along = {1: "left", 0: "center", -1: "right"}, {1: "bottom", 0: "center", -1: "top"}
            text = axes.annotate(
                name, point, (x, y), textcoords="offset points", fontsize=7, ha=across[_sign(x)], va=along[_sign(y)]
            )
            box = text.get_window_extent()
            if not any(box.overlaps(other) for other in taken) and box.x0 >= axes.bbox.x0 and box.x1 <= axes.bbox.x1:
                break
            text.remove()
        else:  # no free place near it
            x, y = PLACES[0]
            text = axes.annotate(name, point, (x, y), textcoords="offset points", fontsize=7, va="center")
        if max(abs(x), abs(y)) > NEAR:
            line = {"arrowstyle": "-", "color": BEFORE, "linewidth": 0.6}
            axes.annotate("", point, (x, y), textcoords="offset points", arrowprops=line)
        taken.append(text.get_window_extent())


def _sign(number: int) -> int:
    return (number > 0) - (number < 0)
