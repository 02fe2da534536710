"""Draw how the accuracy of methods changes over a stream."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from tpt_lib.evaluation.run_schema import Row
from tpt_lib.evaluation.run_summary import stream_outcomes
from tpt_lib.plots.figure import AFTER, BEFORE, PUBLISHED, RIGHT, WRONG, new_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["plot_stream"]

COLORS = (BEFORE, AFTER, PUBLISHED, RIGHT, WRONG, "#805ad5", "#319795", "#b7791f")


def plot_stream(
    correct: Mapping[str, Sequence[bool] | Tensor] | Sequence[Row], *, window: int = 100, title: str = ""
) -> Figure:
    """Draw the accuracy of each method over a stream: the mean of the last images, and, dashed, that of all so far.

    Both begin when the window is full. A method that learns rises; one that collapses, such as on a stream sorted by class,
    falls.

    Args:
        correct: for each method whether its answer to each image was right, in the order of the stream; or the rows of one seed
            of a run, by their positions in the stream if they have any. Rows without a result or without a truth are left out.
        window: number of images in the running mean (default 100; all images if there are fewer).
        title: title of the figure (default: no title).

    Returns:
        The figure.

    >>> figure = plot_stream({"zero-shot": [True, False, False], "TDA": [False, True, True]}, window=2)
    >>> [line.get_label() for line in figure.axes[0].lines if not line.get_label().startswith("_")]
    ['zero-shot: 33.3', 'TDA: 66.7']
    """
    if window < 1:
        raise ValueError(f"plot_stream: window must be at least 1, but got {window}")
    outcomes = correct if isinstance(correct, Mapping) else _of_one_stream(correct)
    series = {name: torch.as_tensor(values).float() for name, values in outcomes.items()}
    lengths = {name: values.numel() for name, values in series.items()}
    if not series or min(lengths.values()) < 1 or any(values.ndim != 1 for values in series.values()):
        raise ValueError(
            f"plot_stream: there must be at least one method, each with at least one image, but got {lengths}"
        )
    window = min(window, *lengths.values())
    figure = new_figure(5.2, 3.2)
    axes = figure.subplots()
    for i, (name, values) in enumerate(series.items()):
        color, total = COLORS[i % len(COLORS)], values.cumsum(0)
        seen = torch.arange(window, len(values) + 1)
        so_far, recent = 100 * total[window - 1 :] / seen, 100 * values.unfold(0, window, 1).mean(dim=1)
        axes.plot(seen.tolist(), recent.tolist(), color=color, linewidth=1.2, label=f"{name}: {so_far[-1]:.1f}")
        axes.plot(seen.tolist(), so_far.tolist(), color=color, linestyle="--", linewidth=0.9)
    axes.set_xlabel("images seen", fontsize=8)
    axes.set_ylabel(f"top-1 accuracy (%)\nlast {window}, dashed: all so far", fontsize=8)
    axes.tick_params(labelsize=7)
    axes.set_title(title, fontsize=8)
    axes.spines[["top", "right"]].set_visible(False)
    figure.legend(loc="outside upper right", frameon=False, fontsize=7, ncols=min(4, len(series)))
    return figure


def _of_one_stream(rows: Sequence[Row]) -> dict[str, list[bool]]:
    """Return for each method of some rows whether its answers are right."""
    if len(seeds := sorted({row["seed"] for row in rows})) > 1:
        raise ValueError(
            f"plot_stream: these are the rows of {len(seeds)} streams, with the seeds {seeds}; pass those of one, as "
            "[row for row in run.rows if row['seed'] == 0]"
        )
    return stream_outcomes(rows)
