"""Colors and helpers that all figures share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tpt_lib.types import ImageLike
from tpt_lib.views.reading import read_image

if TYPE_CHECKING:
    from matplotlib.figure import Figure

BEFORE, AFTER = "#b0b7c3", "#2b6cb0"
RIGHT, WRONG = "#2f855a", "#c53030"
PUBLISHED = "#dd6b20"


def require_matplotlib() -> None:
    """Raise an ImportError that says what to install if matplotlib is missing. Long work calls it first."""
    try:
        import matplotlib.figure  # noqa: F401
    except ImportError as error:
        raise ImportError('figures need matplotlib: pip install "tpt_lib[plots]"') from error


def new_figure(width: float, height: float) -> Figure:
    """Return an empty figure of a size in inches, without a backend or global state."""
    require_matplotlib()
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), dpi=150, layout="constrained")


def show_pixels(axes: Any, image: ImageLike, title: str = "", color: str = "black") -> None:
    """Draw an image, as ``read_image`` takes it, with a colored frame and a title."""
    axes.imshow(read_image(image).permute(1, 2, 0).numpy())
    axes.set(xticks=[], yticks=[])
    axes.set_title(title, fontsize=8, color=color)
    for side in axes.spines.values():
        side.set(color=color, linewidth=1.5)
