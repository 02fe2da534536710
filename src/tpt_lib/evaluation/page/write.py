"""Write a report as one page that needs no network and no server."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from html import escape
from pathlib import Path
from string import Template
from typing import Any

import torch

from tpt_lib.evaluation.metrics import Outcomes
from tpt_lib.evaluation.page.charts import COLORS, accuracy_chart, cost_chart, reliability_chart, stream_chart
from tpt_lib.evaluation.page.gallery import Changes, changes_of, dataset_titles, fixed_and_broken, packed
from tpt_lib.evaluation.page.thumbnails import SIDE, Find, thumbnails_of
from tpt_lib.evaluation.run_reading import Run
from tpt_lib.evaluation.run_summary import is_probability, stream_outcomes
from tpt_lib.evaluation.table import Table

__all__ = ["report_page"]

FOLDER = Path(__file__).parent
COUNTS = "fixed: wrong by the other method and right by this one; broken: the reverse; p: McNemar's exact test."

Figure = tuple[str, str]  # title and drawing
Titles = Mapping[tuple[str, str], str]  # by model and dataset
Rows = Mapping[str, Sequence[Mapping[str, Any]]]  # of each dataset, by title


def report_page(
    table: Table,
    rows: Sequence[Mapping[str, Any]],
    outcomes: Iterable[tuple[Run, str, Mapping[int, Outcomes]]],
    runs: Sequence[Run],
    find: Find | None,
    thumbnails: int,
) -> str:
    """Return the page.

    Args:
        table: the report's table.
        rows: its rows as numbers.
        outcomes: the answers of each run and method under each seed.
        runs: its runs.
        find: what ``image_finder`` returned.
        thumbnails: number of thumbnails, at most.
    """
    methods, titles = list(dict.fromkeys(row["method"] for row in rows)), dataset_titles(runs)
    by_dataset: dict[str, list[Mapping[str, Any]]] = {title: [] for title in titles.values()}
    for row in rows:
        by_dataset[titles[row["model"], row["dataset"]]].append(row)
    changes = changes_of(runs)
    compared = [row for one in changes for row in fixed_and_broken(one)]
    sections = {
        "Results": _table("results", table),
        "Accuracy": _grid(_accuracies(by_dataset)),
        "Calibration": _grid(_reliabilities(outcomes, titles)),
        "Accuracy over cost": _grid(_costs(by_dataset, methods)),
        "Streams": _grid(_streams(runs, methods, titles)),
        "Fixed and broken": _table("fixed and broken", Table(tuple(compared), COUNTS)) if compared else "",
        "Gallery": _gallery(changes, find, thumbnails),
    }
    kept = {name: content for name, content in sections.items() if content}
    ids = {name: name.lower().replace(" ", "-") for name in kept}
    datasets = ", ".join(dict.fromkeys(run.label for run in runs))
    return _filled(
        "page.html",
        title=escape(f"{', '.join(methods)} on {datasets}"),
        models=escape(", ".join(dict.fromkeys(run.model or "not known" for run in runs))),
        style=_read("page.css"),
        script=_read("page.js"),
        links="".join(f'<a href="#{ids[name]}">{name}</a> ' for name in kept),
        sections="".join(
            f'<section aria-labelledby="{ids[name]}"><h2 id="{ids[name]}">{name}</h2>{NOTES.get(name, "")}{content}</section>'
            for name, content in kept.items()
        ),
    )


NOTES = {
    "Accuracy": "<p>Top-1 accuracy in percent, the mean over seeds, with Wilson's 95% interval for the number of images. "
    "A mark in another color is the paper's number.</p>",
    "Calibration": "<p>Accuracy of images by their confidence, all seeds together. Pale: more accurate than confident. Red: "
    "more confident than accurate. ECE is the calibration error in 15 bins.</p>",
    "Streams": "<p>Solid: accuracy of the last images. Dashed: of all images so far.</p>",
    "Accuracy over cost": "<p>Seconds are the method's own, without views and features.</p>",
}


def _accuracies(by_dataset: Rows) -> Iterator[Figure]:
    for title, rows in by_dataset.items():
        if known := [row for row in rows if row["top1"] is not None]:
            yield title, accuracy_chart(known)


def _reliabilities(outcomes: Iterable[tuple[Run, str, Mapping[int, Outcomes]]], titles: Titles) -> Iterator[Figure]:
    for run, method, by_seed in outcomes:
        known = [said for said in by_seed.values() if len(said.truth)]
        drawn = "<p>Empty: its confidences are shares of votes, not probabilities.</p>"
        if is_probability(run, method):
            parts = [(said.confidence, said.correct) for said in known]
            drawn = reliability_chart(*map(torch.cat, zip(*parts, strict=True))) if parts else "<p>No results.</p>"
        yield f"{method} on {titles[run.model, run.label]}", drawn


def _costs(by_dataset: Rows, methods: Sequence[str]) -> Iterator[Figure]:
    for title, rows in by_dataset.items():
        if known := [row for row in rows if row["top1"] is not None and row["seconds"] is not None]:
            yield title, cost_chart(known, methods)


def _streams(runs: Sequence[Run], methods: Sequence[str], titles: Titles) -> Iterator[Figure]:
    for run in runs:
        for seed in run.header["seeds"] if "stream" in run.header["settings"] else ():
            correct = stream_outcomes(row for row in run.rows if row["seed"] == seed)
            if correct:
                title = f"{titles[run.model, run.label]}, seed {seed}"
                yield title, stream_chart(correct, methods) + _legend(correct, methods)


def _gallery(changes: Sequence[Changes], find: Find | None, most: int) -> str:
    listed = [one for one in changes if one.listed]
    if not listed:
        return "<p>No image was right by one method and wrong by another.</p>"
    made = thumbnails_of(listed, find, most)
    images = sum(len({change.row["sample"] for change in one.listed}) for one in listed)
    note = (
        f"{images:,} images were right by one method and wrong by another. {sum(map(len, made)):,} have a thumbnail of at most "
        f"{SIDE} by {SIDE} pixels, and come first. Probabilities before a method are those of its own zero-shot prediction."
    )
    return _filled("gallery.html", note=note, data=packed(listed, made))


def _legend(names: Iterable[str], methods: Sequence[str]) -> str:
    items = (f'<li><span class="m{methods.index(name) % COLORS}"></span>{escape(name)}</li>' for name in names)
    return f'<ul class="legend">{"".join(items)}</ul>'


def _grid(figures: Iterable[Figure]) -> str:
    drawn = [f"<figure><figcaption>{escape(title)}</figcaption>{chart}</figure>" for title, chart in figures]
    return f'<div class="grid">{"".join(drawn)}</div>' if drawn else ""


def _table(label: str, table: Table) -> str:
    return f'<div class="scroll" tabindex="0" role="region" aria-label="table: {label}">{table._repr_html_()}</div>'


def _filled(name: str, **values: str) -> str:
    return Template(_read(name)).substitute(values)


def _read(name: str) -> str:
    return (FOLDER / name).read_text(encoding="utf-8")
