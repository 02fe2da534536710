"""Every figure of the library: each function returns a matplotlib ``Figure``, which the caller shows or saves."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

from torch import Tensor

from tpt_lib.images import listed, read_image

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from tpt_lib.bongard import BongardPrediction

__all__ = ["plot_bongard"]

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
