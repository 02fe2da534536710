"""Draw a report: accuracies and reliability."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from tpt_lib.evaluation.metrics import calibration_error, reliability
from tpt_lib.evaluation.report import Report
from tpt_lib.evaluation.run_summary import is_probability
from tpt_lib.plots.figure import AFTER, BEFORE, PUBLISHED, new_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["plot_accuracies", "plot_reliability"]


def plot_reliability(report: Report, *, bins: int = 15) -> Figure:
    """Draw accuracy over confidence in bins: a panel per dataset and method, with the share of samples per bin below.

    A bin's accuracy is blue, pale blue above its mean confidence (underconfident). Where confidence exceeds accuracy, the
    excess is red (overconfident). Seeds are pooled; the corner shows the calibration error of the pooled samples. The panel of
    a method whose confidences are shares of votes is empty.

    Args:
        report: the report of one run or several.
        bins: number of bins (default 15).

    Returns:
        The figure.

    >>> said = {"index": 0, "confidence": 0.9, "entropy": 0.3, "top5": []}
    >>> row = {"seed": 0, "sample": 0, "truth": 0, "methods": {"TPT": said}}
    >>> header = {"dataset": "pets", "split": "test", "classes": ["cat", "dog"], "methods": ["TPT"], "seeds": [0], "n": 1}
    >>> run = tpt_lib.evaluation.Run({**header, "settings": {}, "hash": ""}, (row,))
    >>> len(plot_reliability(tpt_lib.Report((run,))).axes)
    2
    """
    panels = list(report.outcomes())
    names = list(dict.fromkeys((run.label, run.model) for run, *_ in panels))
    several = len({model for _, model in names}) > 1
    methods = list(dict.fromkeys(method for _, method, _ in panels))
    figure = new_figure(max(3.2, 0.3 + 2.5 * len(methods)), 0.3 + 3.1 * len(names))
    grid = figure.add_gridspec(2 * len(names), len(methods), height_ratios=[3, 1] * len(names))
    for run, method, of_seeds in panels:
        row, column = 2 * names.index((run.label, run.model)), methods.index(method)
        above = figure.add_subplot(grid[row, column])
        below = figure.add_subplot(grid[row + 1, column], sharex=above)
        if is_probability(run, method):
            confidence = torch.cat([said.confidence for said in of_seeds.values()])
            correct = torch.cat([said.correct for said in of_seeds.values()])
            _draw_bins(above, below, confidence, correct, bins)
        else:
            above.text(0.5, 0.5, "votes are not\nprobabilities", transform=above.transAxes, ha="center", fontsize=8)
        above.set_title(f"{run.label}{f', {run.model}' if several else ''}\n{method}", fontsize=8)
    handles, labels = max((axes.get_legend_handles_labels() for axes in figure.axes), key=lambda pair: len(pair[0]))
    figure.legend(handles, labels, loc="outside upper center", frameon=False, fontsize=7, ncols=3, handlelength=1)
    return figure


def _draw_bins(above: Any, below: Any, confidence: Tensor, correct: Tensor, bins: int) -> None:
    means, accuracies, counts = (values.nan_to_num(0) for values in reliability(confidence, correct, bins=bins))
    centers = [(i + 0.5) / bins for i in range(bins)]
    bar = {"width": 1 / bins, "edgecolor": "white", "linewidth": 0.5}
    lower = means.minimum(accuracies)
    above.bar(centers, lower.tolist(), color=AFTER, label="accuracy", **bar)
    over, under = (means - lower).tolist(), (accuracies - lower).tolist()
    above.bar(centers, under, bottom=lower.tolist(), color="#aac4df", label="underconfident", **bar)
    above.bar(centers, over, bottom=lower.tolist(), color="#f0a5a5", label="overconfident", **bar)
    above.plot([0, 1], [0, 1], color="black", linestyle="--", linewidth=0.8)
    if len(correct):
        error = 100 * calibration_error(confidence, correct, bins=bins)
        above.text(0.04, 0.95, f"ECE {error:.1f}%", transform=above.transAxes, va="top", fontsize=8)
    above.set(xlim=(0, 1), ylim=(0, 1))
    above.set_ylabel("accuracy", fontsize=8)
    above.tick_params(labelbottom=False, labelsize=7)
    below.bar(centers, (100 * counts / max(1, len(correct))).tolist(), color=BEFORE, **bar)
    below.set_xlabel("confidence", fontsize=8)
    below.set_ylabel("samples (%)", fontsize=8)
    below.tick_params(labelsize=7)
    for axes in (above, below):
        axes.spines[["top", "right"]].set_visible(False)


def plot_accuracies(report: Report) -> Figure:
    """Draw the top-1 accuracy of each method on each dataset, and the paper's averages if the report has all their datasets.

    Error bars are standard deviations over seeds; orange lines are the paper's numbers.

    Args:
        report: the report of one run or several.

    Returns:
        The figure.

    >>> said = {"index": 0, "confidence": 0.9, "entropy": 0.3, "top5": []}
    >>> row = {"seed": 0, "sample": 0, "truth": 0, "methods": {"TPT": said}}
    >>> header = {"dataset": "pets", "split": "test", "classes": ["cat", "dog"], "methods": ["TPT"], "seeds": [0], "n": 1}
    >>> run = tpt_lib.evaluation.Run({**header, "settings": {}, "hash": ""}, (row,))
    >>> figure = plot_accuracies(tpt_lib.Report((run,)))
    >>> [text.get_text() for text in figure.axes[0].texts]
    ['100.0']
    """
    rows = [row for row in [*report.rows(), *report.averages()] if row["top1"] is not None]
    several = len({row["model"] for row in rows}) > 1
    groups = list(dict.fromkeys(_group(row, several) for row in rows))
    methods = list(dict.fromkeys(row["method"] for row in rows))
    width = min(0.4, 0.8 / max(1, len(methods)))
    figure = new_figure(max(3.2, 0.8 + len(groups) * max(1.0, 0.32 * len(methods))), 3.2)
    axes = figure.subplots()
    for i, method in enumerate(methods):
        own = [row for row in rows if row["method"] == method]
        places = [groups.index(_group(row, several)) + (i - (len(methods) - 1) / 2) * width for row in own]
        heights, deviations = [row["top1"] for row in own], [row["top1_std"] or 0.0 for row in own]
        axes.bar(places, heights, 0.92 * width, color=_shade(i, len(methods)), label=method)
        if any(deviations):
            axes.errorbar(places, heights, deviations, fmt="none", ecolor="black", elinewidth=0.8, capsize=2)
        for place, height in zip(places, heights, strict=True):
            color = "white" if i == len(methods) - 1 and height > 8 else "black"
            text = f"{height:.1f}"
            axes.annotate(text, (place, 0), (0, 2), textcoords="offset points", ha="center", fontsize=6, color=color)
        known = [(place, row["paper"]) for place, row in zip(places, own, strict=True) if row["paper"] is not None]
        for x, y in known:
            axes.hlines(y, x - width / 2, x + width / 2, color=PUBLISHED, linewidth=1.6, label="paper")
    axes.set_xticks(range(len(groups)), [re.sub("(: |/)", r"\1\n", group) for group in groups], fontsize=7)
    axes.set_xlim(-0.6, len(groups) - 0.4)
    axes.set_ylabel("top-1 accuracy (%)", fontsize=8)
    axes.tick_params(axis="y", labelsize=7)
    axes.spines[["top", "right"]].set_visible(False)
    handles = dict(zip(*reversed(axes.get_legend_handles_labels()), strict=True))
    order = sorted(handles, key=lambda label: label == "paper")
    columns = max(1, int(figure.get_figwidth() / (0.6 + 0.06 * max(map(len, order)))))
    drawn = [handles[label] for label in order]
    figure.legend(drawn, order, loc="outside upper right", frameon=False, fontsize=7, ncols=min(columns, len(order)))
    return figure


def _group(row: dict[str, Any], several: bool) -> str:
    return f"{row['dataset']}\n{row['model']}" if several else row["dataset"]


def _shade(i: int, n: int) -> str:
    """Return a method's color: the first gray, the last blue, others in between."""
    between = ["#8fb3d9", "#d6bcfa", "#9ae6b4", "#f6e05e", "#fbb6ce"]
    return BEFORE if i == 0 and n > 1 else AFTER if i == n - 1 else between[(i - 1) % len(between)]
