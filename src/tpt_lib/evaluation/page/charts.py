"""Draw the charts of a report's page."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from tpt_lib.evaluation.metrics import calibration_error, reliability
from tpt_lib.evaluation.page.svg import (
    LEFT,
    RIGHT,
    TOP,
    WIDTH,
    chart,
    element,
    frame,
    log_ticks,
    polyline,
    scale,
    text,
    ticks,
)
from tpt_lib.evaluation.significance import wilson

__all__ = ["accuracy_chart", "cost_chart", "reliability_chart", "stream_chart"]

BINS = 15
POINTS = 200  # of a line, at most
WINDOW = 100  # images of a running mean, at most
COLORS = 8  # in page.css
LONGEST = 26  # letters of a name
BOTTOM = 180  # of the axes
ROW, LINE = 34, 12  # heights of a method's accuracy, and of a word


def accuracy_chart(rows: Sequence[Mapping[str, Any]]) -> str:
    """Draw each method's top-1 accuracy on one dataset with its interval, and the paper's number as a mark."""
    intervals = [[100 * end for end in wilson(row["top1"] / 100, row["n"])] for row in rows]
    shown = [row["top1"] for row in rows] + [row["paper"] for row in rows if row["paper"] is not None]
    low, high = (end(end(map(end, intervals)), end(shown)) for end in (min, max))
    x, parts, said = scale(low, high, RIGHT, WIDTH - RIGHT), [], []
    for i, (row, (start, stop)) in enumerate(zip(rows, intervals, strict=True)):
        y = ROW * i + 24
        numbers = f"{row['top1']:.1f} ({start:.1f} to {stop:.1f})"
        said.append(f"{row['method']} {numbers}")
        parts += [text(0, y - 11, shortened(row["method"])), text(WIDTH, y - 11, numbers, text_anchor="end")]
        parts.append(polyline([(x(start), y), (x(stop), y)], class_="interval"))
        parts.append(element("circle", cx=x(row["top1"]), cy=y, r=4, class_="point"))
        if row["paper"] is not None:
            title = element("title", f"paper: {row['paper']}")
            parts.append(element("rect", title, x=x(row["paper"]) - 1.5, y=y - 6, width=3, height=12, class_="paper"))
    axis = [text(x(value), ROW * len(rows) + 14, f"{value:g}", text_anchor="middle") for value in ticks(low, high)]
    return chart(ROW * len(rows) + 18, f"top-1 accuracy in percent: {', '.join(said)}", *parts, *axis)


def reliability_chart(confidence: Float[Tensor, " n"], correct: Bool[Tensor, " n"]) -> str:
    """Draw the accuracy of each bin of confidence: pale where it exceeds the mean confidence, red where it falls short."""
    means, accuracies, counts = (each.nan_to_num(0).tolist() for each in reliability(confidence, correct, bins=BINS))
    x, y = scale(0, 1, LEFT, WIDTH - RIGHT), scale(0, 1, BOTTOM, TOP)
    share = scale(0, max(counts), 0, 24)
    width, parts = (x(1) - x(0)) / BINS - 1, []
    for i, (mean, accuracy, count) in enumerate(zip(means, accuracies, counts, strict=True)):
        lower, upper = sorted((mean, accuracy))
        for start, stop, kind in ((0, lower, "bar"), (lower, upper, "under" if accuracy > mean else "over")):
            if stop > start:
                box: dict[str, Any] = {"x": x(i / BINS), "y": y(stop), "width": width, "height": y(start) - y(stop)}
                parts.append(element("rect", **box, class_=kind))
        box = {"x": x(i / BINS), "y": 246 - share(count), "width": width, "height": share(count)}
        parts.append(element("rect", element("title", f"{count} images"), **box, class_="count"))
    error = 100 * calibration_error(confidence, correct, bins=BINS)
    grid = frame(
        BOTTOM, x, y, {one: f"{one:g}" for one in ticks(0, 1)}, ticks(0, 1), "accuracy over confidence; images below"
    )
    diagonal = polyline([(x(0), y(0)), (x(1), y(1))], class_="guide")
    corner = text(LEFT + 6, TOP + 12, f"ECE {error:.1f}%")
    return chart(248, f"calibration error {error:.1f} percent", grid, *parts, diagonal, corner)


def cost_chart(rows: Sequence[Mapping[str, Any]], methods: Sequence[str]) -> str:
    """Draw the accuracy of each method over its own milliseconds per image, on a logarithmic axis."""
    costs = [math.log10(max(1000 * row["seconds"], 1e-3)) for row in rows]
    heights = [row["top1"] for row in rows]
    first, last, low, high = min(costs) - 0.2, max(costs) + 0.2, min(heights) - 1, max(heights) + 1
    x, y = scale(first, last, LEFT, WIDTH - RIGHT), scale(low, high, BOTTOM, TOP)
    parts, taken, said = [], [], []
    for row, cost, height in zip(rows, costs, heights, strict=True):
        name, at, color = row["method"], (x(cost), y(height)), methods.index(row["method"]) % COLORS
        said.append(f"{name} {height:.1f} at {10**cost:.3g} ms")
        parts.append(element("circle", element("title", escape(said[-1])), cx=at[0], cy=at[1], r=4, class_=f"m{color}"))
        taken.append((at[0] - 5, at[0] + 5, at[1]))
    for row, cost, height in zip(rows, costs, heights, strict=True):
        parts.append(_beside(row["method"], x(cost), y(height), taken))
    grid = frame(BOTTOM, x, y, log_ticks(first, last), _percents(low, high), "accuracy (%) over ms per image")
    return chart(214, f"accuracy over milliseconds per image: {', '.join(said)}", grid, *parts)


def shortened(name: str) -> str:
    """Return a name, cut to fit in a chart; the tables of the page have it in full."""
    return name if len(name) <= LONGEST else f"{name[: LONGEST - 1]}…"


def _percents(low: float, high: float) -> list[int | float]:
    """Return ticks of accuracies, where the axis may reach below 0 and above 100."""
    return ticks(max(low, 0), min(high, 100), 5)


def _beside(name: str, x: float, y: float, taken: list[tuple[float, float, float]]) -> str:
    """Return a name next to a point, moved up or down within the axes until it covers no other name or point."""
    name = shortened(name)
    wide = 6.4 * len(name)
    left = x + wide + 8 < WIDTH
    start = x + 7 if left else x - 7 - wide
    shifts = (shift for shift in sorted(range(-6, 7), key=abs) if TOP <= y + LINE * shift <= BOTTOM)
    free = (
        shift
        for shift in shifts
        if not any(a < start + wide and start < b and abs(y + LINE * shift - other) < LINE - 1 for a, b, other in taken)
    )
    at = y + LINE * next(free, 0)
    taken.append((start, start + wide, at))
    return text(x + 7 if left else x - 7, at + 3, name, text_anchor="start" if left else "end")


def stream_chart(correct: Mapping[str, Sequence[bool]], methods: Sequence[str]) -> str:
    """Draw each method's accuracy over a stream: of the last images (solid) and of all so far (dashed)."""
    longest = max(map(len, correct.values()))
    window = min(WINDOW, math.ceil(longest / 5), *map(len, correct.values()))
    lines = {name: _running_means(answers, window) for name, answers in correct.items()}
    heights = [height for _, *means in lines.values() for each in means for height in each]
    low, high = min(heights) - 1, max(heights) + 1
    x, y, parts = scale(window, longest, LEFT, WIDTH - RIGHT), scale(low, high, BOTTOM, TOP), []
    for name, (seen, recent, so_far) in lines.items():
        color = f"line m{methods.index(name) % COLORS}"
        for means, kind in ((recent, color), (so_far, f"{color} guide")):
            parts.append(polyline(zip(map(x, seen), map(y, means), strict=True), class_=kind))
    said = ", ".join(f"{name} {so_far[-1]:.1f}" for name, (*_, so_far) in lines.items())
    marks = {one: f"{one:g}" for one in ticks(window, longest, 4)}
    words = f"accuracy (%) of the last {window} over images seen"
    grid = frame(BOTTOM, x, y, marks, _percents(low, high), words)
    return chart(214, f"accuracy over the stream, at its end: {said}", grid, *parts)


def _running_means(correct: Sequence[bool], window: int) -> tuple[list[int], list[float], list[float]]:
    """Return some numbers of images seen, and the accuracy of the last ones and of all so far at each."""
    total = torch.tensor([False, *correct], dtype=torch.double).cumsum(0)
    seen = torch.linspace(window, len(correct), min(POINTS, len(correct) - window + 1)).round().long()
    recent, so_far = (total[seen] - total[seen - window]) / window, total[seen] / seen
    return seen.tolist(), (100 * recent).tolist(), (100 * so_far).tolist()
