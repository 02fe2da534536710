"""Draw the effect of tuning on one image."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from jaxtyping import Float
from torch import Tensor

from tpt_lib.plots.figure import AFTER, BEFORE, RIGHT, new_figure, show_pixels
from tpt_lib.prediction import Prediction
from tpt_lib.types import ImageLike

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["plot_prediction"]


def plot_prediction(
    prediction: Prediction,
    image: ImageLike,
    before: Float[Tensor, "n k"],
    after: Float[Tensor, "n k"],
    *,
    truth: str | None = None,
    top: int = 5,
) -> Figure:
    """Draw the effect of tuning on one image, as in appendix A.7.

    The upper row has the image and its likeliest classes before and after tuning. The lower row has the probabilities of
    every class in each view, with the selected views in blue.

    Args:
        prediction: what ``tpt_predict`` returned for one image.
        image: the image, anything ``read_image`` takes.
        before: logits of the views ``(N, K)`` before tuning: ``class_logits(model, features, encode_prompts(model, prompts))``.
        after: the same after tuning, with ``encode_prompts(model, prompts, prediction.context)``.
        truth: the true class; drawn above the image and in green among the bars (default None).
        top: number of classes with bars (default 5).

    Returns:
        The figure.

    >>> image, features = torch.rand(3, 60, 80), torch.eye(256)[:8]
    >>> prompts = tpt_lib.class_prompts(model, ["cat", "dog", "red panda"])
    >>> said = tpt_lib.tpt_predict(model, prompts, features)
    >>> texts = [tpt_lib.encode_prompts(model, prompts, context) for context in (None, said.context)]
    >>> figure = plot_prediction(said, image, *(tpt_lib.class_logits(model, features, text) for text in texts))
    >>> len(figure.axes)
    4
    """
    if prediction.before is None or prediction.selected is None or prediction.logits.ndim != 1:
        raise ValueError(
            "plot_prediction: prediction must be that of one image before and after tuning, as tpt_predict returns it, but got "
            f"{prediction!r}"
        )
    for name, logits in (("before", before), ("after", after)):
        if logits.ndim != 2 or logits.shape[-1] != len(prediction.names):
            raise ValueError(
                f"plot_prediction: {name} must be logits of the views (N, {len(prediction.names)}), but got shape "
                f"{tuple(logits.shape)}"
            )
    figure = new_figure(7.2, 4.6)
    grid = figure.add_gridspec(2, 6, height_ratios=[1.25, 1])
    show_pixels(figure.add_subplot(grid[0, :2]), image, truth or "", "black")
    _draw_classes(figure.add_subplot(grid[0, 2:]), prediction, prediction.zero_shot, truth, top)
    selected = set(prediction.selected.tolist())
    probs = [logits.softmax(dim=-1).detach().cpu() for logits in (before, after)]
    for column, (name, values) in enumerate(zip(("before", "after"), probs, strict=True)):
        axes = figure.add_subplot(grid[1, 3 * column : 3 * column + 3])
        _draw_views(axes, values, selected)
        axes.set_title(f"{len(values)} views {name}, the {len(selected)} selected in blue", fontsize=8)
        axes.set_ylim(0, 1.05 * max(float(each.max()) for each in probs))
    figure.axes[2].set_ylabel("probability", fontsize=8)
    return figure


def _draw_classes(axes: Any, after: Prediction, before: Prediction, truth: str | None, top: int) -> None:
    highest = before.probs.maximum(after.probs)
    shown = highest.topk(min(top, len(highest))).indices.flip(0).tolist()
    for i, (said, color, label) in enumerate([(after, AFTER, "after TPT"), (before, BEFORE, "zero-shot")]):
        values = said.probs[shown].tolist()
        places = [place + 0.4 * (i - 0.5) for place in range(len(shown))]
        axes.barh(places, values, 0.38, color=color, label=label)
        for place, p in zip(places, values, strict=True):
            axes.annotate(f"{p:.2f}", (p, place), (2, 0), textcoords="offset points", va="center", fontsize=7)
    axes.set_yticks(range(len(shown)), [after.names[c] for c in shown], fontsize=8)
    for tick, c in zip(axes.get_yticklabels(), shown, strict=True):
        tick.set_color(RIGHT if after.names[c] == truth else "black")
    axes.set_xlim(0, 1.08 * float(highest.max()) + 0.04)
    axes.set_xticks([])
    axes.spines[["top", "right", "bottom"]].set_visible(False)
    handles, labels = axes.get_legend_handles_labels()
    axes.legend(handles[::-1], labels[::-1], frameon=False, fontsize=8, loc="lower right")


def _draw_views(axes: Any, probs: Tensor, selected: set[int]) -> None:
    for view in sorted(range(len(probs)), key=lambda view: view in selected):
        blue = view in selected
        axes.plot(probs[view].tolist(), color=AFTER if blue else BEFORE, linewidth=1.2 if blue else 0.5, alpha=0.8)
    axes.set_xlabel(f"{probs.shape[-1]} classes", fontsize=8)
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(labelsize=7)
    axes.set_xticks([])
