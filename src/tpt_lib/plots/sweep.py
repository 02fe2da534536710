"""Draw sweeps as the paper does."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tpt_lib.evaluation.table import Table
from tpt_lib.plots.figure import AFTER, BEFORE, new_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["plot_sweep"]


def plot_sweep(table: Table) -> Figure:
    """Draw a sweep as the paper does (figures 4 and 5): accuracy, or entropy without labels, with zero-shot as a line.

    Args:
        table: what ``sweep_fractions``, ``sweep_views``, ``sweep_steps`` or ``sweep_groups`` returned. For a grid over
            learning rates and steps, the best of each group is drawn.

    Returns:
        The figure.

    >>> row = {"method": "TPT", "steps": 1, "accuracy": 0.5, "entropy": 1.0}
    >>> table = tpt_lib.evaluation.Table((row | {"method": "zero-shot", "steps": None}, row, row | {"steps": 2}), swept="steps")
    >>> len(plot_sweep(table).axes)
    1
    """
    if table.swept not in LABELS:
        raise ValueError(
            f"plot_sweep: this table does not come from a sweep over {', '.join(LABELS)}; its columns are {table.columns}"
        )
    shown = "accuracy" if table.rows[0]["accuracy"] is not None else "entropy"
    factor = 100 if shown == "accuracy" else 1
    best: dict[Any, dict[str, Any]] = {}
    for row in table.rows:
        known = best.get(row[table.swept])
        if known is None or (row[shown] - known[shown]) * (1 if shown == "accuracy" else -1) > 0:
            best[row[table.swept]] = row
    zero_shot = best.pop(None, None)
    figure = new_figure(4.2, 3.0)
    axes = figure.subplots()
    values, heights = list(best), [factor * row[shown] for row in best.values()]
    if table.swept == "group":
        bars = axes.bar([LABELS_OF_GROUPS.get(v, v) for v in values], heights, color=AFTER, width=0.6)
        settings = [f"lr {row['lr']:g}\n{row['steps']} step{'s' * (row['steps'] > 1)}" for row in best.values()]
        notes = [f"{height:.3g}\n{setting}" for height, setting in zip(heights, settings, strict=True)]
        box = {"facecolor": "white", "edgecolor": "none", "pad": 0.5}  # hides the line of zero-shot behind the words
        axes.bar_label(bars, notes, fontsize=6, padding=3, bbox=box)
    else:
        axes.plot(values, heights, marker="o", color=AFTER, label="TPT")
        if table.swept == "views" and min(values) > 0:
            axes.set_xscale("log", base=2)
        axes.set_xticks(values, [f"{v:g}" for v in values])
        axes.minorticks_off()
    if zero_shot is not None:
        axes.axhline(factor * zero_shot[shown], color=BEFORE, linestyle="--", label="zero-shot", zorder=0)
        heights = [*heights, factor * zero_shot[shown]]
    spread = max(heights) - min(heights) or abs(heights[0]) or 1
    axes.set_ylim(min(heights) - 0.2 * spread, max(heights) + 0.3 * spread)
    axes.set(xlabel=LABELS[table.swept], ylabel="accuracy (%)" if shown == "accuracy" else "mean entropy")
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, fontsize=8, loc="lower right", bbox_to_anchor=(1, 1), ncols=2)
    return figure


LABELS = {
    "fraction": r"share of confident views $\rho$",
    "views": "number of views $N$",
    "steps": "number of steps",
    "group": "what is tuned",
}

LABELS_OF_GROUPS = {"prompt": "prompt", "text": "text\nencoder", "image": "visual\nencoder", "all": "whole\nmodel"}
