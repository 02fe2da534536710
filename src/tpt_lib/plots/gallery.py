"""Draw images with the answer of each method."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from tpt_lib.plots.figure import RIGHT, WRONG, new_figure, show_pixels
from tpt_lib.types import ImageLike

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["plot_gallery"]

LONGEST = 34  # most characters of a line under an image
COLUMNS = 4
SIDE, GAP, TITLE, LINE = 1.8, 0.15, 0.25, 0.14  # of an image, between images, above them, and of an answer, in inches


def plot_gallery(images: Sequence[ImageLike], truths: Sequence[str], answers: Mapping[str, Sequence[str]]) -> Figure:
    """Draw a gallery: each image under its true class, with the answer of each method, in green if it is right.

    Args:
        images: the images, anything ``read_image`` takes.
        truths: the true class of each image.
        answers: for each method, by the name to show, its answer to each image.

    Returns:
        The figure, with four images in a row.

    >>> answers = {"zero-shot": ["cat", "dog"], "TPT": ["cat", "cat"]}
    >>> figure = plot_gallery(list(torch.rand(2, 3, 40, 40)), ["cat", "cat"], answers)
    >>> [text.get_text() for text in figure.texts[2:]]
    ['zero-shot: dog', 'TPT: cat']
    """
    if not images or {len(truths), *map(len, answers.values())} != {len(images)}:
        numbers = {name: len(said) for name, said in answers.items()}
        raise ValueError(
            f"plot_gallery: every image needs one truth and one answer of each method, and there must be at least one image, "
            f"but got {len(images)} images, {len(truths)} truths and answers {numbers}"
        )
    rows, cell = math.ceil(len(images) / COLUMNS), SIDE + GAP
    tall = TITLE + SIDE + LINE * len(answers) + GAP
    width, height = COLUMNS * cell + GAP, rows * tall
    figure = new_figure(width, height)
    figure.set_layout_engine(None)
    for at, (image, truth) in enumerate(zip(images, truths, strict=True)):
        row, column = divmod(at, COLUMNS)
        left, bottom = (GAP + column * cell) / width, 1 - (row * tall + TITLE + SIDE) / height
        show_pixels(figure.add_axes((left, bottom, SIDE / width, SIDE / height)), image, _short(truth))
        for line, (name, said) in enumerate(answers.items(), 1):
            color = RIGHT if said[at] == truth else WRONG
            figure.text(left, bottom - line * LINE / height, _short(f"{name}: {said[at]}"), fontsize=6.5, color=color)
    return figure


def _short(text: str) -> str:
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"
