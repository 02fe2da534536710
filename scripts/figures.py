"""Draw docs/figures: the paper's ablations, settings and methods on drawings, the README's, pages of reports and the app.

``python scripts/figures.py``. ``scripts/settings.py`` measures the settings, ``scripts/methods.py`` the methods. Pages of
reports and the app are photographed in chromium.
"""

import contextlib
import io
import json
import sys
import tempfile
from pathlib import Path
from statistics import fmean, median
from typing import Any

import PIL.Image
from matplotlib.figure import Figure

import tpt_lib as tpt
from tpt_lib.evaluation.table import Table
from tpt_lib.plots.figure import AFTER, BEFORE, new_figure

FIGURES = Path(__file__).parents[1] / "docs/figures"
SETTINGS, METHODS = FIGURES.parent / "settings.json", FIGURES.parent / "methods.json"
DRAWING = "unicorn"
sys.path.append(str(FIGURES.parents[1] / "tests"))
TABLES = {table.number: table for table in tpt.paper.paper_tables()}


def selection() -> Figure:
    """Draw table 4: what TPT adds to CLIP with confidence selection, and without."""
    clip, without, full = (row["values"] for row in TABLES[4].rows)
    figure = new_figure(6.4, 2.6)
    axes = figure.subplots()
    for values, label, color, shift in (
        (without, "all 64 views", BEFORE, -0.2),
        (full, "the 10% most confident", AFTER, 0.2),
    ):
        gains = [value - base for value, base in zip(values, clip, strict=True)]
        bars = axes.bar([i + shift for i in range(len(gains))], gains, 0.38, color=color, label=label)
        axes.bar_label(bars, fmt="%+.1f", fontsize=7, padding=1)
    names = [name.replace("average: ", "average,\n").replace("imagenet-", "-") for name in TABLES[4].columns]
    axes.set_xticks(range(len(names)), names)
    axes.set_ylabel("points over zero-shot", fontsize=8)
    return finished(figure)


def without_tuning() -> Figure:
    """Draw table 8, the same views without tuning, and table 9, MEMO over the share of views that it keeps."""
    figure = new_figure(6.4, 2.6)
    left, right = figure.subplots(1, 2, gridspec_kw={"width_ratios": [1, 1.2]})
    clip, *others = (row["values"][-2] for row in TABLES[8].rows)
    names = [row["method"].replace(" ", "\n") for row in TABLES[8].rows[1:]]
    bars = left.bar(names, [value - clip for value in others], 0.6, color=[BEFORE, BEFORE, AFTER])
    left.bar_label(bars, fmt="%+.1f", fontsize=7, padding=1)
    left.axhline(0, color="black", linewidth=0.8)
    left.margins(y=0.15)
    left.set_ylabel("points over zero-shot", fontsize=8)
    rows = {row["method"]: row["values"][-2] for row in TABLES[9].rows}
    kept = {0.1: "MEMO (rho=0.1)", 0.3: "MEMO (rho=0.3)", 0.5: "MEMO (rho=0.5)", 0.7: "MEMO (rho=0.7)", 1.0: "MEMO"}
    gains = [rows[name] - rows["ResNet-50"] for name in kept.values()]
    right.plot(list(kept), gains, marker="o", color=AFTER)
    right.set(xticks=list(kept), ylim=(0, 4))
    right.set_xlabel(r"share of confident views $\rho$ in MEMO", fontsize=8)
    right.set_ylabel("points over the ResNet-50", fontsize=8)
    return finished(figure)


def finished(figure: Figure) -> Figure:
    for axes in figure.axes:
        axes.tick_params(labelsize=8)
        axes.spines[["top", "right"]].set_visible(False)
    if figure.axes[0].get_legend_handles_labels()[0]:
        figure.legend(loc="outside upper right", frameon=False, fontsize=8, ncols=2)
    return figure


def paper() -> dict[str, Figure]:
    """Draw the paper's ablations from its tables."""
    return {"selection": selection(), "without-tuning": without_tuning()}


def settings(found: dict[str, Any]) -> Figure:
    """Draw what TPT adds to zero-shot under each setting, with the 95% interval of the paired difference."""
    labels = {"views": "views", "fraction": "share of confident views", "steps": "steps", "lr": "learning rate"}
    figure = new_figure(8.4, 2.6)
    for axes, (name, label) in zip(figure.subplots(1, len(labels)), labels.items(), strict=True):
        gains, widths = zip(*(gain(found["n"], row["fixed"], row["broken"]) for row in found[name]), strict=True)
        places = range(len(gains))
        axes.errorbar(places, gains, widths, marker="o", color=AFTER, elinewidth=1, markerfacecolor="white")
        default = [row["value"] for row in found[name]].index(found["defaults"][name])
        axes.plot(default, gains[default], marker="o", color=AFTER, zorder=3)
        axes.axhline(0, color="black", linewidth=0.8)
        axes.set_xticks(places, [f"{row['value']:g}" for row in found[name]])
        axes.set_xlabel(label, fontsize=8)
        if name != "lr":  # the others fit one scale
            axes.set_ylim(-2, 7)
    figure.axes[0].set_ylabel("points over zero-shot", fontsize=8)
    return finished(figure)


def gain(n: int, fixed: int, broken: int) -> tuple[float, float]:
    """Return a difference of two accuracies on the same samples in points, and half the width of its 95% interval."""
    difference = fixed - broken
    return 100 * difference / n, 100 * 1.96 * (fixed + broken - difference**2 / n) ** 0.5 / n


def methods(found: dict[str, Any]) -> Figure:
    """Draw the accuracy of each method over its cost, as measured by ``scripts/methods.py``."""
    rows = [
        {
            "method": tpt.get_method(name).title,
            "accuracy": fmean(own["accuracy"]) / 100,
            "seconds": median(own["seconds"]),
        }
        for name, own in found["methods"].items()
    ]
    return tpt.plots.plot_methods(Table(tuple(rows)))


def prediction() -> Figure:
    """Draw the figure of the README: a drawing whose prediction TPT corrects."""
    model, data = tpt.load_tiny(), tpt.load_tiny_drawings()
    image, truth = data.samples[data.classes.index(DRAWING)]
    prompts = tpt.class_prompts(model, data.classes, template=data.template)
    features = tpt.encode_views(model, tpt.augment_views(image, model.image_spec, seed=0))
    said = tpt.tpt_predict(model, prompts, features)
    texts = [tpt.encode_prompts(model, prompts, context) for context in (None, said.context)]
    before, after = (tpt.class_logits(model, features, text) for text in texts)
    return tpt.plots.plot_prediction(said, image, before, after, truth=data.classes[truth])


def photograph_report(folder: Path) -> None:
    """Evaluate drawings, write the report as a page, and photograph it: wide, on a phone, and its gallery in the dark."""
    from support.browser import open_browser

    model, data = tpt.load_tiny(), tpt.load_tiny_drawings(n=150)
    methods, page = ["zero_shot", "view_average", "zero", "tpt", "tda"], folder / "report.html"
    report = tpt.evaluate(model, data, methods, out=folder / "run.jsonl", n_views=16, num_workers=0)
    report.to_html(page, dataset=data)
    with open_browser() as browser:
        for name, width, height, scheme, top in (
            ("report-wide", 1000, 1250, "light", "body"),
            ("report-phone", 360, 1250, "light", "body"),
            ("report-dark", 1000, 900, "dark", "#gallery"),
        ):
            tab = browser.new_page(viewport={"width": width, "height": height}, color_scheme=scheme)
            tab.goto(page.as_uri())
            tab.wait_for_selector("#cards li")
            tab.locator(top).evaluate("one => one.scrollIntoView()")
            tab.screenshot(path=FIGURES / f"{name}.png")


def app(folder: Path) -> None:
    """Take pictures of the three tabs of the browser app, in Debian's chromium."""
    from support.browser import open_browser

    from tpt_lib.app.page import serve
    from tpt_lib.app.words import named_model

    server, address = serve({"tiny": named_model(tpt.load_tiny(), "tpt.load_tiny()")})
    with open_browser() as browser:
        page = browser.new_page(viewport={"width": 1200, "height": 1440})
        page.goto(address)
        page.get_by_label("Steps").fill("4")
        page.get_by_role("button", name="Run").click()
        page.locator("#views figure").first.wait_for()
        photograph(page, folder / "app-one-method.png")
        page.get_by_role("tab", name="All methods").click()
        page.get_by_role("button", name="Compare").click()
        page.locator("#methods tr").first.wait_for()
        page.set_viewport_size({"width": 1200, "height": 920})
        photograph(page, folder / "app-all-methods.png")
        page.get_by_role("tab", name="Bongard problem").click()
        page.get_by_label("number input for Embedded problem").fill("8")
        page.get_by_role("button", name="Load it").click()
        page.locator("#query-images img").nth(1).wait_for()
        page.get_by_role("button", name="Solve").click()
        page.locator("#verdicts li").first.wait_for()
        page.set_viewport_size({"width": 1200, "height": 1330})
        photograph(page, folder / "app-bongard.png")
    server.close()


def app_of_store(folder: Path) -> None:
    """Take a picture of the browser app with a sample of a store."""
    from support.app import drawn_store, tiny
    from support.browser import open_browser

    from tpt_lib.app.page import serve

    with tempfile.TemporaryDirectory() as made, contextlib.chdir(made), open_browser() as browser:
        drawn_store(Path(), n_views=64)
        server, address = serve({"tiny": tiny()}, store=tpt.FeatureStore.open("store"))
        page = browser.new_page(viewport={"width": 1200, "height": 1150})
        page.goto(address)
        page.get_by_label("Sample, 0 to 3").fill("1")
        page.get_by_label("Steps").fill("4")
        page.get_by_role("button", name="Run").click()
        page.locator("#views figure").first.wait_for()
        photograph(page, folder / "app-store.png")
        server.close()


def photograph(page: Any, file: Path) -> None:
    """Save what a page shows, in 256 colors."""
    page.wait_for_timeout(1500)  # for what fades in
    picture = PIL.Image.open(io.BytesIO(page.screenshot()))
    picture.convert("RGB").quantize(256).save(file, optimize=True)


if __name__ == "__main__":
    FIGURES.mkdir(exist_ok=True)
    drawn = paper() | {
        "settings": settings(json.loads(SETTINGS.read_text())),
        "methods": methods(json.loads(METHODS.read_text())),
        "prediction": prediction(),
    }
    for name, figure in drawn.items():
        figure.savefig(FIGURES / f"{name}.png")
    app(FIGURES)
    app_of_store(FIGURES)
    with tempfile.TemporaryDirectory() as folder:
        photograph_report(Path(folder))
