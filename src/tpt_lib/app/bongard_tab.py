"""Build the tab that solves a Bongard problem from two groups of images."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import PIL.Image

import tpt_lib as tpt
from tpt_lib.app.choices import MAX_BONGARD_STEPS, find_model, read_group
from tpt_lib.app.other_tabs import solve_bongard
from tpt_lib.app.show import plot_losses
from tpt_lib.app.stoppable import Report
from tpt_lib.app.wiring import HIDDEN, add_buttons, on_click
from tpt_lib.app.words import NamedModel

GROUPS = ("positive", "negative", "query")
PROBLEMS = 60  # embedded ones


def bongard_tab(gr: Any, models: Mapping[str, NamedModel], model: Any) -> None:
    """Add the components of the tab; ``model`` is the component that has the chosen model."""
    gr.Markdown("What do the positive images share, and the negative images not? Every query is judged.")
    with gr.Row():
        number = gr.Slider(1, PROBLEMS, 1, step=1, label="Embedded problem")
        load = gr.Button("Load it")
    with gr.Row():
        groups = [_gallery(gr, name) for name in GROUPS]
    with gr.Row():
        steps = gr.Slider(0, MAX_BONGARD_STEPS, 64, step=1, label="Steps")
        lr = gr.Number(5e-3, minimum=0, maximum=1, label="Learning rate")
        seed = gr.Number(0, precision=0, minimum=0, label="Seed")
    added = add_buttons(gr, "Solve")
    verdicts = gr.Markdown(elem_id="verdicts")
    with gr.Row():
        drawn = gr.Plot(show_label=False, visible=False, scale=3)
        losses = gr.Plot(show_label=False, visible=False, scale=2)

    def work(report: Report, chosen: str, *values: Any) -> dict[Any, Any]:
        *images, n_steps, rate, start = values
        named = find_model(models, chosen)
        read = [read_group(name, [path for path, _ in group or ()]) for name, group in zip(GROUPS, images, strict=True)]
        solved = solve_bongard(named, *read, steps=n_steps, lr=rate, seed=start, report=report)
        history = dict(enumerate(solved.losses.tolist()))
        return {
            verdicts: describe(solved),
            drawn: gr.update(value=tpt.plots.plot_bongard(solved), visible=True),
            losses: gr.update(value=plot_losses(history), visible=len(history) > 1),
        }

    load.click(embedded_problem, number, groups, **HIDDEN)
    on_click(gr, added, work, [model, *groups, steps, lr, seed], [verdicts, drawn, losses])


def _gallery(gr: Any, name: str) -> Any:
    """Add a gallery to drop images on. PNG keeps the pixels of embedded images."""
    with gr.Column(min_width=200):
        gr.Markdown(f"**{name.capitalize()} images**")
        return gr.Gallery(
            show_label=False, columns=2, height=400, file_types=["image"], format="png", elem_id=f"{name}-images"
        )


def embedded_problem(number: int) -> list[list[PIL.Image.Image]]:
    """Return the images of an embedded problem: positive, negative, queries."""
    problem = tpt.load_tiny_bongard(n=PROBLEMS).samples[int(number) - 1]
    return [
        [PIL.Image.fromarray(pixels.permute(1, 2, 0).numpy()) for pixels in group]
        for group in (problem.positives, problem.negatives, problem.queries)
    ]


def describe(solved: tpt.BongardPrediction) -> str:
    """Return the verdicts as Markdown."""
    said = zip(solved.verdicts, solved.probs.tolist(), strict=True)
    lines = [f"- query {i}: **{verdict}** ({max(p, 1 - p):.2f})" for i, (verdict, p) in enumerate(said, 1)]
    return "\n".join([*lines, f"- {solved.support_accuracy:.0%} of the given images are on their side"])
