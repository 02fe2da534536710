"""Draw a Bongard problem."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import Tensor

from tpt_lib.methods.bongard_prediction import BongardPrediction
from tpt_lib.plots.figure import RIGHT, WRONG, new_figure, show_pixels
from tpt_lib.views.reading import each_image

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["plot_bongard"]


def plot_bongard(prediction: BongardPrediction) -> Figure:
    """Draw a Bongard problem: its positives, its negatives, and the queries with their verdicts.

    Args:
        prediction: what ``bongard_tpt`` returned for images; features cannot be drawn.

    Returns:
        The figure.

    >>> images = list(torch.rand(5, 3, 40, 60))
    >>> result = tpt_lib.bongard_tpt(model, images[:2], images[2:4], images[4:], steps=1)
    >>> figure = plot_bongard(result)
    >>> len(figure.axes)
    5
    """
    if any(isinstance(images, Tensor) and images.ndim == 2 for images in prediction.images):
        raise ValueError("plot_bongard: this problem was given as features; pass images to bongard_tpt to draw them")
    rows = [list(each_image(images)) for images in prediction.images]
    verdicts = [
        f"{v}, {max(p, 1 - p):.2f}" for v, p in zip(prediction.verdicts, prediction.probs.tolist(), strict=True)
    ]
    titles = [["positive"] * len(rows[0]), ["negative"] * len(rows[1]), [f"query: {verdict}" for verdict in verdicts]]
    columns = max(3, *map(len, rows))
    figure = new_figure(1.3 * columns, 4.6)
    for row, (images, texts) in enumerate(zip(rows, titles, strict=True)):
        for column, (image, text) in enumerate(zip(images, texts, strict=True)):
            color = RIGHT if "positive" in text else WRONG
            show_pixels(figure.add_subplot(3, columns, row * columns + column + 1), image, text, color)
    return figure
