"""Every figure of the library: each function returns a matplotlib ``Figure``, which the caller shows or saves."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

from torch import Tensor

from tpt_lib.images import listed, read_image
from tpt_lib.tables import Table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from tpt_lib.bongard import BongardPrediction

__all__ = ["plot_bongard", "plot_sweep"]

BEFORE, AFTER = "#b0b7c3", "#2b6cb0"
RIGHT, WRONG = "#2f855a", "#c53030"


def new_figure(width: float, height: float) -> Figure:
    """An empty figure in inches, of no backend and no global state."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ImportError('figures need matplotlib: pip install "tpt_lib[plots]"') from error
    return Figure(figsize=(width, height), dpi=150, layout="constrained")


def show_pixels(axes: Any, image: Any, title: str = "", colour: str = "black") -> None:
    """An image of any kind that ``read_image`` takes, framed in a colour, under a title."""
    axes.imshow(read_image(image).permute(1, 2, 0).numpy())
    axes.set(xticks=[], yticks=[])
    axes.set_title(title, fontsize=8, color=colour)
    for side in axes.spines.values():
        side.set(color=colour, linewidth=1.5)


def as_png(figure: Figure) -> bytes:
    """The figure as the bytes of a PNG file."""
    file = io.BytesIO()
    figure.savefig(file, format="png")
    return file.getvalue()


def plot_bongard(prediction: BongardPrediction) -> Figure:
    """A Bongard problem as a picture: its positives, its negatives, and the queries with their verdicts.

    Args:
        prediction: what ``bongard_tpt`` said, from images, not from features.

    >>> images = list(torch.rand(5, 3, 40, 60))
    >>> result = tpt_lib.bongard_tpt(model, images[:2], images[2:4], images[4:], steps=1)
    >>> figure = plot_bongard(result)
    >>> len(figure.axes)
    5
    """
    rows = [listed(images) for images in prediction.images]
    if not all(map(len, rows)) or any(isinstance(image, Tensor) and image.ndim != 3 for row in rows for image in row):
        raise ValueError("plot_bongard: this problem was given as features; give bongard_tpt images to see them")
    verdicts = [
        f"{v}, {max(p, 1 - p):.2f}" for v, p in zip(prediction.verdicts, prediction.probs.tolist(), strict=True)
    ]
    titles = [["positive"] * len(rows[0]), ["negative"] * len(rows[1]), [f"query: {verdict}" for verdict in verdicts]]
    columns = max(3, *map(len, rows))
    figure = new_figure(1.3 * columns, 4.6)
    for row, (images, texts) in enumerate(zip(rows, titles, strict=True)):
        for column, (image, text) in enumerate(zip(images, texts, strict=True)):
            colour = RIGHT if "positive" in text else WRONG
            show_pixels(figure.add_subplot(3, columns, row * columns + column + 1), image, text, colour)
    return figure


def plot_sweep(table: Table) -> Figure:
    """The paper's figure of a sweep (figures 4 and 5): accuracy, or entropy where there are no labels, and zero-shot's.

    Args:
        table: what ``sweep_fractions``, ``sweep_views``, ``sweep_steps`` or ``sweep_groups`` returned. Of a grid over
            learning rates and steps the best of each group is drawn.

    >>> row = {"method": "TPT", "steps": 1, "accuracy": 0.5, "entropy": 1.0}
    >>> table = tpt_lib.Table((row | {"method": "zero-shot", "steps": None}, row, row | {"steps": 2}), swept="steps")
    >>> len(plot_sweep(table).axes)
    1
    """
    if table.swept not in LABELS:
        raise ValueError(
            f"plot_sweep: this table is not of a sweep over {', '.join(LABELS)}; its columns are {table.columns}"
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
        axes.bar_label(bars, notes, fontsize=6, padding=2)
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
