"""Every figure of the library: each function returns a matplotlib ``Figure``, which the caller shows or saves."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.figure import Figure

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
    from tpt_lib.images import read_image

    axes.imshow(read_image(image).permute(1, 2, 0).numpy())
    axes.set(xticks=[], yticks=[])
    axes.set_title(title, fontsize=8, color=colour)
    for side in axes.spines.values():
        side.set(color=colour, linewidth=1.5)
