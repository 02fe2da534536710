"""Build the tabs about one image or sample: one method in full, and all methods next to each other."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import PIL.Image

from tpt_lib.app.choices import (
    LIMITS,
    MAX_VIEWS,
    default_settings,
    drawing_labels,
    read_choice,
    read_drawing,
    selectable_methods,
)
from tpt_lib.app.explain import explain
from tpt_lib.app.other_tabs import compare_methods
from tpt_lib.app.show import method_table, notes, plot_losses, to_image, true_label, view_grid, word_table
from tpt_lib.app.stoppable import Report
from tpt_lib.app.store_inputs import add_store_inputs, first_views, on_source
from tpt_lib.app.stored import ServedStore
from tpt_lib.app.wiring import HIDDEN, add_buttons, on_click
from tpt_lib.app.words import NamedModel
from tpt_lib.methods.base import get_method

DRAWING = "noto-v1: unicorn"
NAMES = "unicorn, horse, goat, deer, telescope, airplane, rocket, scissors, violin, guitar"
INPUTS = ("source", "sample", "image", "drawing", "names", "model", "template", "views", "seed")
CHOSEN = (*INPUTS, "method", *LIMITS)


def add_inputs(gr: Any, models: Mapping[str, NamedModel], served: ServedStore | None = None) -> dict[str, Any]:
    """Add the inputs that the tabs share, and return the components by name.

    Args:
        gr: Gradio.
        models: the models that users may choose.
        served: the store that users may choose samples of (default None). It is the source until a user chooses another.
    """
    parts = {} if served is None else add_store_inputs(gr, served)
    model = next(iter(models if served is None else served.of))
    n_views, seed = first_views(served)
    seen: Any = {"visible": served is None}  # of what only images need
    uploads: Any = {"sources": ["upload", "clipboard"], "height": 220}
    parts |= {
        "image": gr.Image(_drawn(DRAWING), label="Image", **uploads, **seen),
        "drawing": gr.Dropdown(
            drawing_labels(), value=DRAWING, label="or an embedded drawing", elem_id="drawing", **seen
        ),
        "names": gr.Textbox(
            NAMES, lines=4, max_lines=8, label="Class names, one per line or separated by commas", **seen
        ),
        "model": gr.Dropdown(list(models), value=model, label="Model"),
        "template": gr.Textbox("a photo of a {}.", label="Template, with {} for the class name", **seen),
        "views": gr.Slider(1, MAX_VIEWS, n_views, step=1, label="Views"),
        "seed": gr.Number(seed, precision=0, minimum=0, label="Seed of the views"),
    }
    if served is not None:
        on_source(gr, served, parts)
    parts["image"].preprocess = lambda sent: None if sent is None else sent.path  # the library reads the file itself
    parts["drawing"].input(_drawn, parts["drawing"], parts["image"], **HIDDEN)
    for event in (parts["image"].upload, parts["image"].clear):  # in the browser: Run must not see the old drawing
        event(None, None, parts["drawing"], js="() => null", **HIDDEN)
    return parts


def _drawn(label: str | None) -> PIL.Image.Image | None:
    return to_image(read_drawing(label).pixels) if label else None


def explain_tab(
    gr: Any, models: Mapping[str, NamedModel], parts: dict[str, Any], served: ServedStore | None = None
) -> None:
    """Add the tab of one method, and its settings to ``parts``, which ``add_inputs`` returned."""
    methods = [(get_method(name).title, name) for name in selectable_methods()]
    with gr.Row():
        parts["method"] = gr.Dropdown(methods, value="tpt", label="Method", min_width=120)
        labels = {"fraction": "Fraction kept", "steps": "Steps", "lr": "Learning rate"}
        for name, value in default_settings("tpt").items():
            low, high = LIMITS[name]
            how: Any = {"steps": {"precision": 0}, "fraction": {"step": 0.05}, "lr": {"step": 0.001}}[name]
            parts[name] = gr.Number(value, minimum=low, maximum=high, label=labels[name], min_width=90, **how)
    added = add_buttons(gr, "Run")
    with gr.Row():
        probabilities = gr.HTML(elem_id="probabilities", min_width=400)
        losses = gr.Plot(show_label=False, visible=False, min_width=320)
    words = gr.HTML(visible=False, elem_id="words")
    shown: Any = {"language": "python", "interactive": False, "wrap_lines": True}
    code = gr.Code(label="The same in Python", visible=False, elem_id="code", **shown)
    views = gr.HTML(elem_id="views")

    chosen = [name for name in CHOSEN if name in parts]

    def work(report: Report, *values: Any) -> dict[Any, Any]:
        named, choice = read_choice(models, dict(zip(chosen, values, strict=True)), served)
        found = explain(named, choice, report)
        said = {"zero-shot": found.prediction.zero_shot, get_method(choice.method).title: found.prediction}
        return {
            probabilities: true_label(choice.truth, said) + found.prediction._repr_html_() + notes(found.notes),
            losses: gr.update(value=plot_losses(found.losses), visible=len(found.losses) > 1),
            words: gr.update(value=word_table(found.words), visible=bool(found.words)),
            code: gr.update(value=found.code, visible=True),
            views: view_grid(found, named.model.image_spec),
        }

    def method_changed(method: str) -> list[Any]:
        taken = default_settings(method)
        return [gr.update(visible=name in taken, value=taken.get(name)) for name in LIMITS]

    parts["method"].input(method_changed, parts["method"], [parts[name] for name in LIMITS], **HIDDEN)
    on_click(gr, added, work, [parts[name] for name in chosen], [probabilities, losses, words, code, views])


def compare_tab(
    gr: Any, models: Mapping[str, NamedModel], parts: dict[str, Any], served: ServedStore | None = None
) -> None:
    """Add the tab that runs every method on the image or sample; ``parts`` are what ``add_inputs`` returned."""
    gr.Markdown(
        "Every method that needs only the features of the views, with its own defaults, on the same views; in blue where "
        "it disagrees with zero-shot."
    )
    added = add_buttons(gr, "Compare")
    table = gr.HTML(elem_id="methods")

    chosen = [name for name in INPUTS if name in parts]

    def work(report: Report, *values: Any) -> dict[Any, Any]:
        named, choice = read_choice(models, dict(zip(chosen, values, strict=True)), served)
        rows = compare_methods(named, choice, report)
        said = {row.title: row.prediction for row in rows if row.prediction is not None}
        return {table: true_label(choice.truth, said) + method_table(rows)}

    on_click(gr, added, work, [parts[name] for name in chosen], [table])
