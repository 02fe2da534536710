"""Show results as HTML and figures. Names that users typed are escaped. Images are embedded, so that no file is left."""

from __future__ import annotations

import base64
import html
import io
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import PIL.Image
from jaxtyping import Float, UInt8
from torch import Tensor

import tpt_lib as tpt
from tpt_lib.app.explain import Explained
from tpt_lib.app.other_tabs import MethodRow
from tpt_lib.app.stoppable import Progress
from tpt_lib.plots.figure import AFTER, new_figure
from tpt_lib.views.preprocessing import mean_and_std

if TYPE_CHECKING:
    from matplotlib.figure import Figure

THUMBNAIL, CARD = 112, 260  # pixels of the longer side of a view, and of the image of a sample

CSS = f"""
.tpt-views {{ display: grid; grid-template-columns: repeat(auto-fill, minmax(118px, 1fr)); gap: 10px; }}
.tpt-views figure {{ margin: 0; padding: 4px; border: 2px solid transparent; border-radius: 6px; font-size: 12px;
  line-height: 1.35; }}
.tpt-views figure.kept {{ border-color: {AFTER}; background: color-mix(in srgb, {AFTER} 12%, transparent); }}
.tpt-views img {{ width: 100%; aspect-ratio: 1; object-fit: contain; margin: 0; border-radius: 3px; }}
.tpt-views figcaption {{ overflow-wrap: anywhere; }}
.tpt-progress progress {{ width: 100%; accent-color: {AFTER}; }}
.tpt-table {{ width: 100%; border-collapse: collapse; }}
.tpt-table, .tpt-table :is(tr, th, td), #probabilities :is(table, tr, td) {{ border: 0 !important; }}
.tpt-table :is(th, td) {{ text-align: left; padding: 4px 10px 4px 0 !important; }}
.tpt-table td:not(:nth-child(3)) {{ white-space: nowrap; }}
.tpt-table tr {{ border-bottom: 1px solid var(--border-color-primary) !important; }}
.tpt-sample img {{ max-width: 100%; margin: 0 auto 6px; border-radius: 6px; }}
.tpt-sample :is(th, td) {{ vertical-align: top; }}
.tpt-sample td {{ white-space: normal !important; overflow-wrap: anywhere; width: 100%; }}
.tpt-sample th {{ white-space: nowrap !important; }}
#probabilities td {{ padding: 2px 6px; }}
.tpt-table tr.changed td {{ font-weight: 600; color: {AFTER}; }}
.tpt-note {{ border-left: 3px solid {AFTER}; padding-left: 8px; }}
"""


def progress_bar(progress: Progress) -> str:
    """Return a progress bar with what is being done."""
    doing, done = html.escape(progress.doing), f"{progress.done:.2f}"
    return f'<div class="tpt-progress" role="status"><progress value="{done}" aria-label="progress"></progress> {doing}</div>'


def notes(texts: Sequence[str]) -> str:
    """Return what the user should know about a result."""
    return "".join(f'<p class="tpt-note">{html.escape(text)}</p>' for text in texts)


def view_grid(found: Explained, spec: tpt.ImageSpec) -> str:
    """Return the views ordered by entropy, those that were kept marked, each with what it says before and after."""
    names, entropies = found.prediction.names, tpt.entropy(found.before).tolist()
    selected = found.prediction.selected
    kept = set() if selected is None else set(selected.tolist())
    pictures = None if found.views is None else thumbnails(found.views, spec)
    before, after = (None if logits is None else _answers(names, logits) for logits in (found.before, found.after))
    assert before is not None
    figures = []
    for place, view in enumerate(sorted(range(len(entropies)), key=lambda view: (entropies[view], view)), 1):
        name = "the image itself" if view == 0 else f"view {view}"
        mark = "kept" if view in kept else "not kept"
        said = before[view] if after is None else f"{before[view]} → {after[view]}"
        image = "" if pictures is None else f'<img src="{pictures[view]}" alt="{name}, {mark}">'
        figures.append(
            f'<figure class="{"kept" if view in kept else "other"}" data-view="{view}">'
            f"{image}<figcaption>{place}. {name}{' <b>kept</b>' if view in kept else ''}<br>entropy {entropies[view]:.2f}<br>"
            f"{said}</figcaption></figure>"
        )
    legend = f"{len(figures)} views, the most confident first" + (f"; {len(kept)} kept, framed in blue" if kept else "")
    legend += "; no pictures, as a store has only features" if pictures is None else ""
    arrow = "" if after is None else "; class and probability before → after"
    return f'<p>{legend}{arrow}</p><div class="tpt-views">{"".join(figures)}</div>'


def _answers(names: Sequence[str], logits: Float[Tensor, "n k"]) -> list[str]:
    probs, at = logits.softmax(dim=-1).max(dim=-1)
    return [f"{html.escape(names[i])} {p:.2f}" for i, p in zip(at.tolist(), probs.tolist(), strict=True)]


def thumbnails(views: Float[Tensor, "n 3 h w"], spec: tpt.ImageSpec) -> list[str]:
    """Return normalized views as small images in data URLs."""
    mean, std = mean_and_std(spec, views.device)
    levels = ((views * std + mean) * 255).round().clamp(0, 255).byte().cpu()
    return [data_url(to_image(one)) for one in levels]


def to_image(pixels: UInt8[Tensor, "3 h w"]) -> PIL.Image.Image:
    """Return pixels as an image."""
    return PIL.Image.fromarray(pixels.permute(1, 2, 0).contiguous().numpy())


def data_url(image: PIL.Image.Image, side: int = THUMBNAIL) -> str:
    """Return an image, made small, as a data URL."""
    image = image.copy()
    image.thumbnail((side, side))
    file = io.BytesIO()
    image.save(file, "webp", quality=80)
    return f"data:image/webp;base64,{base64.b64encode(file.getvalue()).decode()}"


def sample_card(known: Mapping[str, str], pixels: UInt8[Tensor, "3 h w"] | None) -> str:
    """Return the picture of a sample, if there is one, and what is known about it. Empty texts are left out."""
    picture = "" if pixels is None else f'<img src="{data_url(to_image(pixels), CARD)}" alt="the image of the sample">'
    rows = "".join(f"<tr><th>{name}</th><td>{html.escape(text)}</td></tr>" for name, text in known.items() if text)
    return f'<div class="tpt-sample">{picture}<table class="tpt-table">{rows}</table></div>'


def true_label(truth: int | None, answers: Mapping[str, tpt.Prediction]) -> str:
    """Return the name of the true class, and which answers are right and wrong; nothing if it is not known."""
    if truth is None or not answers:
        return ""
    name = next(iter(answers.values())).names[truth]
    each = {
        "Right": [title for title, said in answers.items() if said.index == truth],
        "Wrong": [title for title, said in answers.items() if said.index != truth],
    }
    told = "".join(f" {verdict}: {html.escape(', '.join(titles))}." for verdict, titles in each.items() if titles)
    return f'<p class="tpt-truth">True label: <b>{html.escape(name)}</b>.{told}</p>'


def word_table(words: Sequence[tuple[str, list[tuple[str, float]]]]) -> str:
    """Return the words nearest to each token of the tuned context, next to the word it started from."""
    if not any(near for _, near in words):
        return "<p>This method does not tune a context, or no word of the model's vocabulary is known.</p>"
    rows = "".join(
        f"<tr><td>{html.escape(start)}</td><td>{', '.join(f'{html.escape(word)} ({d:.3f})' for word, d in near)}</td></tr>"
        for start, near in words
    )
    head = "<tr><th>context token</th><th>words nearest to it after tuning, with their distances</th></tr>"
    return f'<table class="tpt-table">{head}{rows}</table>'


def method_table(rows: Sequence[MethodRow]) -> str:
    """Return a row per method, in bold if it disagrees with the first one, which is zero-shot."""
    first = rows[0].prediction
    lines = []
    for row in rows:
        said = row.prediction
        if said is None:
            cells = [row.title, f"cannot run: {row.error}", "", "", ""]
        else:
            (label, p), *others = said.top(3)
            next_best = ", ".join(f"{name} {q:.2f}" for name, q in others)
            cells = [row.title, f"{label} {p:.2f}", next_best, f"{said.entropy:.2f}", f"{1000 * row.seconds:.0f}"]
        changed = said is not None and first is not None and said.label != first.label
        line = "".join(f"<td>{html.escape(cell)}</td>" for cell in cells)
        lines.append(f'<tr class="{"changed" if changed else "same"}">{line}</tr>')
    titles = ("method", "prediction", "next best", "entropy", "ms")
    head = "".join(f"<th>{title}</th>" for title in titles)
    return f'<table class="tpt-table"><tr>{head}</tr>{"".join(lines)}</table>'


def plot_losses(losses: Mapping[int, float]) -> Figure:
    """Draw the loss over the steps."""
    figure = new_figure(4.8, 2.4)
    axes = figure.subplots()
    axes.plot(list(losses), list(losses.values()), marker="o", markersize=3, color=AFTER)
    axes.set_title("loss per step", fontsize=8)
    axes.set_xlabel("steps", fontsize=8)
    axes.locator_params(axis="x", integer=True)
    axes.tick_params(labelsize=8)
    axes.spines[["top", "right"]].set_visible(False)
    return figure
