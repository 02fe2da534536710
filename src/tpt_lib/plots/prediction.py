"""What tuning did to one image."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from tpt_lib.models.protocol import ClipLike
    from tpt_lib.prediction import Prediction
    from tpt_lib.prompts.class_prompts import ClassPrompts
from tpt_lib.plots.figure import AFTER, BEFORE, RIGHT, new_figure, show_pixels

__all__ = ["plot_prediction"]


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
    from tpt_lib.logits import class_logits
    from tpt_lib.text.encode import encode_prompts

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
