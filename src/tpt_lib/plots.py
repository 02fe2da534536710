"""Every figure of the library: each function returns a matplotlib ``Figure``, which the caller shows or saves."""

from __future__ import annotations

import io
import re
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from tpt_lib.images import listed, read_image
from tpt_lib.tables import Table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from tpt_lib.bongard import BongardPrediction
    from tpt_lib.evaluation.report import Report
    from tpt_lib.model import ClipLike
    from tpt_lib.prediction import Prediction
    from tpt_lib.prompts import ClassPrompts
    from tpt_lib.tables import Table

__all__ = [
    "plot_accuracies",
    "plot_bongard",
    "plot_improvement",
    "plot_prediction",
    "plot_reliability",
    "plot_sweep",
]

BEFORE, AFTER = "#b0b7c3", "#2b6cb0"
RIGHT, WRONG = "#2f855a", "#c53030"
PUBLISHED = "#dd6b20"


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


def plot_prediction(
    model: ClipLike,
    prompts: ClassPrompts,
    features: Tensor,
    prediction: Prediction,
    image: Any,
    *,
    truth: str | None = None,
    top: int = 5,
) -> Figure:
    """What tuning did to one image (the figures of appendix A.7).

    Above, the image and its likeliest classes before and after; below, what each view says of every class before and after,
    the trusted views in blue.

    Args:
        model: the model.
        prompts: where tuning started.
        features: those of the views ``(N, E)``, row 0 the plain image.
        prediction: what ``tpt_predict`` made of them.
        image: the image itself.
        truth: its class, if it is known.
        top: how many classes have bars.

    >>> prompts = tpt_lib.class_prompts(model, ["cat", "dog", "red panda"])
    >>> image = torch.rand(3, 60, 80)
    >>> features = tpt_lib.encode_views(model, tpt_lib.augment_views(image, model.image_spec, n_views=8))
    >>> figure = plot_prediction(model, prompts, features, tpt_lib.tpt_predict(model, prompts, features), image)
    >>> len(figure.axes)
    4
    """
    from tpt_lib.model import class_logits
    from tpt_lib.text import encode_prompts

    if prediction.zero_shot is None or prediction.context is None:
        raise ValueError(
            "plot_prediction: this prediction was not tuned, so there is no before and after; see tpt_predict"
        )
    before, after = prediction.zero_shot.probs, prediction.probs
    shown = before.maximum(after).topk(min(top, len(before))).indices.flip(0).tolist()
    figure = new_figure(7.2, 4.6)
    grid = figure.add_gridspec(2, 6, height_ratios=[1.25, 1])
    show_pixels(figure.add_subplot(grid[0, :2]), image, truth or "", "black")
    bars = figure.add_subplot(grid[0, 2:])
    for i, (probs, colour, label) in enumerate([(after, AFTER, "after TPT"), (before, BEFORE, "zero-shot")]):
        places = [place + 0.4 * (i - 0.5) for place in range(len(shown))]
        bars.barh(places, probs[shown].tolist(), 0.38, color=colour, label=label)
        for place, p in zip(places, probs[shown].tolist(), strict=True):
            bars.annotate(f"{p:.2f}", (p, place), (2, 0), textcoords="offset points", va="center", fontsize=7)
    bars.set_yticks(range(len(shown)), [prompts.names[c] for c in shown], fontsize=8)
    for tick, c in zip(bars.get_yticklabels(), shown, strict=True):
        tick.set_color(RIGHT if prompts.names[c] == truth else "black")
    bars.set_xlim(0, 1.08 * float(before.maximum(after).max()) + 0.04)
    bars.set_xticks([])
    bars.spines[["top", "right", "bottom"]].set_visible(False)
    bars.legend(
        *(each[::-1] for each in bars.get_legend_handles_labels()), frameon=False, fontsize=8, loc="lower right"
    )
    trusted = set(() if prediction.selected is None else prediction.selected.tolist())
    high = 0.0
    for column, (name, context) in enumerate({"before": None, "after": prediction.context}.items()):
        with torch.no_grad():
            probs = class_logits(model, features, encode_prompts(model, prompts, context)).softmax(dim=-1).cpu()
        axes = figure.add_subplot(grid[1, 3 * column : 3 * column + 3])
        for view in sorted(range(len(probs)), key=lambda view: view in trusted):
            blue = view in trusted
            axes.plot(probs[view].tolist(), color=AFTER if blue else BEFORE, linewidth=1.2 if blue else 0.5, alpha=0.8)
        axes.set_title(f"{len(probs)} views {name}, the {len(trusted)} trusted in blue", fontsize=8)
        axes.set_xlabel(f"{len(prompts.names)} classes", fontsize=8)
        axes.spines[["top", "right"]].set_visible(False)
        axes.tick_params(labelsize=7)
        axes.set_xticks([])
        high = max(high, float(probs.max()))
    for axes in figure.axes[2:]:
        axes.set_ylim(0, 1.05 * high)
    figure.axes[2].set_ylabel("probability", fontsize=8)
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


def plot_reliability(report: Report, *, bins: int = 15) -> Figure:
    """Accuracy over confidence, in bins: a panel for each dataset and method, with how many samples are in each bin below.

    The blue of a bin is its accuracy, pale where it exceeds the bin's mean confidence (underconfident); red is what confidence
    has more than accuracy (overconfident). Seeds are pooled; the calibration error in the corner is of what is drawn.

    Args:
        report: what was run.
        bins: their number.

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
        confidence = torch.cat([said.confidence for said in of_seeds.values()])
        correct = torch.cat([said.correct for said in of_seeds.values()])
        _draw_bins(above, below, confidence, correct, bins)
        above.set_title(f"{run.label}{f', {run.model}' if several else ''}\n{method}", fontsize=8)
    handles, labels = figure.axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", frameon=False, fontsize=7, ncols=3, handlelength=1)
    return figure


def _draw_bins(above: Any, below: Any, confidence: Tensor, correct: Tensor, bins: int) -> None:
    from tpt_lib.evaluation.metrics import calibration_error, reliability

    means, accuracies, counts = (values.nan_to_num(0) for values in reliability(confidence, correct, bins=bins))
    centres = [(i + 0.5) / bins for i in range(bins)]
    bar = {"width": 1 / bins, "edgecolor": "white", "linewidth": 0.5}
    lower = means.minimum(accuracies)
    above.bar(centres, lower.tolist(), color=AFTER, label="accuracy", **bar)
    over, under = (means - lower).tolist(), (accuracies - lower).tolist()
    above.bar(centres, under, bottom=lower.tolist(), color="#aac4df", label="underconfident", **bar)
    above.bar(centres, over, bottom=lower.tolist(), color="#f0a5a5", label="overconfident", **bar)
    above.plot([0, 1], [0, 1], color="black", linestyle="--", linewidth=0.8)
    if len(correct):
        error = 100 * calibration_error(confidence, correct, bins=bins)
        above.text(0.04, 0.95, f"ECE {error:.1f}%", transform=above.transAxes, va="top", fontsize=8)
    above.set(xlim=(0, 1), ylim=(0, 1))
    above.set_ylabel("accuracy", fontsize=8)
    above.tick_params(labelbottom=False, labelsize=7)
    below.bar(centres, (100 * counts / max(1, len(correct))).tolist(), color=BEFORE, **bar)
    below.set_xlabel("confidence", fontsize=8)
    below.set_ylabel("samples (%)", fontsize=8)
    below.tick_params(labelsize=7)
    for axes in (above, below):
        axes.spines[["top", "right"]].set_visible(False)


def plot_accuracies(report: Report) -> Figure:
    """Top-1 accuracy of each method on each dataset, and the paper's averages where all of their datasets are there.

    Error bars are standard deviations over seeds, orange lines the paper's own numbers.

    Args:
        report: what was run.

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
            colour = "white" if i == len(methods) - 1 and height > 8 else "black"
            text = f"{height:.1f}"
            axes.annotate(text, (place, 0), (0, 2), textcoords="offset points", ha="center", fontsize=6, color=colour)
        known = [(place, row["paper"]) for place, row in zip(places, own, strict=True) if row["paper"] is not None]
        for x, y in known:
            axes.hlines(y, x - width / 2, x + width / 2, color=PUBLISHED, linewidth=1.6, label="the paper's")
    axes.set_xticks(range(len(groups)), [re.sub("(: |/)", r"\1\n", group) for group in groups], fontsize=7)
    axes.set_xlim(-0.6, len(groups) - 0.4)
    axes.set_ylabel("top-1 accuracy (%)", fontsize=8)
    axes.tick_params(axis="y", labelsize=7)
    axes.spines[["top", "right"]].set_visible(False)
    handles = dict(zip(*reversed(axes.get_legend_handles_labels()), strict=True))
    order = sorted(handles, key=lambda label: label == "the paper's")
    columns = max(1, int(figure.get_figwidth() / (0.6 + 0.06 * max(map(len, order)))))
    drawn = [handles[label] for label in order]
    figure.legend(drawn, order, loc="outside upper right", frameon=False, fontsize=7, ncols=min(columns, len(order)))
    return figure


def plot_improvement(table: Table) -> Figure:
    """The heat map of figure 3: relative improvement over zero-shot, a row for each source, the average on the right.

    Args:
        table: what ``relative_improvement`` returned.

    >>> table = tpt_lib.relative_improvement({("dtd", "pets"): 40.0, ("TPT", "pets"): 60.0}, {"pets": 50.0})
    >>> [text.get_text() for text in plot_improvement(table).axes[0].texts]
    ['-0.20', '-0.20', '+0.20', '+0.20']
    """
    if table.columns[:1] != ["source"] or table.columns[-1:] != ["average"]:
        raise ValueError(
            f"plot_improvement: this table is not of relative_improvement; its columns are {table.columns}"
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
                colour = "white" if abs(value) > 0.6 * limit else "black"
                axes.text(x, y, f"{round(value, 2) + 0.0:+.2f}", ha="center", va="center", fontsize=6.5, color=colour)
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


def _group(row: dict[str, Any], several: bool) -> str:
    return f"{row['dataset']}\n{row['model']}" if several else row["dataset"]


def _shade(i: int, n: int) -> str:
    """The first method grey, the last blue, those between in other colours."""
    between = ["#8fb3d9", "#d6bcfa", "#9ae6b4", "#f6e05e", "#fbb6ce"]
    return BEFORE if i == 0 and n > 1 else AFTER if i == n - 1 else between[(i - 1) % len(between)]
