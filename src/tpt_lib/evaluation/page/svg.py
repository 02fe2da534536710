"""Write small charts as SVG. Their colors are the classes of ``page.css``, so they follow dark mode."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from html import escape
from typing import Any

__all__ = ["WIDTH", "chart", "element", "frame", "log_ticks", "polyline", "scale", "text", "ticks"]

Number = int | float

WIDTH = 320  # of every chart, so that its words stay readable on a phone
LEFT, RIGHT, TOP = 36, 20, 8  # margins around the axes; RIGHT is half of a label, which is centered on its value
LOG_DIGITS = ((1,), (1, 3), (1, 2, 5), (1, 1.5, 2, 3, 5, 7))  # first digits of ticks, from few to many


def element(name: str, content: str = "", **attributes: Any) -> str:
    """Return an element. Attributes are escaped, and ``_`` in their names is ``-``; the content is markup."""
    listed = "".join(f' {key.strip("_").replace("_", "-")}="{escape(_short(v))}"' for key, v in attributes.items())
    return f"<{name}{listed}>{content}</{name}>"


def text(x: Number, y: Number, words: str, **attributes: Any) -> str:
    """Return escaped words at a position."""
    return element("text", escape(words), x=x, y=y, **attributes)


def polyline(points: Iterable[tuple[Number, Number]], **attributes: Any) -> str:
    """Return a line through points."""
    return element("polyline", points=" ".join(f"{x:.1f},{y:.1f}" for x, y in points), **attributes)


def chart(height: Number, label: str, *parts: str) -> str:
    """Return a chart of these parts, with a label for screen readers."""
    return element("svg", "".join(parts), viewBox=f"0 0 {WIDTH} {height:g}", role="img", aria_label=label)


def scale(low: Number, high: Number, start: Number, stop: Number) -> Callable[[Number], Number]:
    """Return the function that maps low to start and high to stop, linearly."""
    return lambda value: start + (value - low) / ((high - low) or 1) * (stop - start)


def ticks(low: Number, high: Number, most: int = 6) -> list[Number]:
    """Return round values from low to high, at most this many.

    >>> ticks(0, 1), ticks(71.3, 84.2)
    ([0.0, 0.2, 0.4, 0.6, 0.8, 1.0], [75, 80])
    """
    rough = (high - low) / most or 1
    power = 10 ** math.floor(math.log10(rough))
    step = next(m * power for m in (1, 2, 5, 10) if m * power >= rough * 0.999)
    return [round(i * step, 10) for i in range(math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) + 1)]


def log_ticks(low: Number, high: Number) -> dict[Number, str]:
    """Return the labels of round values on a logarithmic axis, by their exponents of ten: at least two over 0.4 decades.

    >>> log_ticks(-0.1, 2.5)
    {0.0: '1', 1.0: '10', 2.0: '100'}
    >>> list(log_ticks(1.1, 1.6).values())
    ['15', '20', '30']
    """
    for digits in LOG_DIGITS:
        values = [digit * 10.0**power for power in range(math.floor(low), math.ceil(high) + 1) for digit in digits]
        found = {math.log10(value): f"{value:g}" for value in values if low <= math.log10(value) <= high}
        if len(found) >= 3:
            break
    return found


def frame(
    bottom: Number,
    x: Callable[[Number], Number],
    y: Callable[[Number], Number],
    across: dict[Number, str],
    along: Iterable[Number],
    words: str,
) -> str:
    """Return the grid: values ``along`` the left, the names of values ``across``, and words below."""
    lines = [
        polyline([(LEFT, y(value)), (WIDTH - RIGHT, y(value))], class_="grid")
        + text(LEFT - 4, y(value) + 4, f"{value:g}", text_anchor="end")
        for value in along
    ]
    below = [text(x(value), bottom + 14, name, text_anchor="middle") for value, name in across.items()]
    return "".join([*lines, *below, text((LEFT + WIDTH) / 2, bottom + 29, words, text_anchor="middle")])


def _short(value: object) -> str:
    return f"{value:.1f}" if isinstance(value, float) else str(value)
