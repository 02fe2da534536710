"""Run several methods on the embedded model's drawings, and show them as a table and as a gallery."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tpt_lib.evaluation.significance import mcnemar
from tpt_lib.evaluation.table import Table
from tpt_lib.features.encode import encode_views
from tpt_lib.methods.base import get_method
from tpt_lib.plots.figure import require_matplotlib
from tpt_lib.plots.gallery import plot_gallery
from tpt_lib.prompts.class_prompts import class_prompts
from tpt_lib.tiny.drawings import load_tiny_drawings
from tpt_lib.tiny.model import load_tiny
from tpt_lib.views.augment import augment_views

METHODS = ("zero_shot", "view_average", "tpt", "zero", "mta", "tps")
SHOWN = 4  # number of fixed and of broken drawings in the figure


def demo(
    *, style: str = "noto-v1", n: int | None = 300, seed: int = 0, out: str | Path = "tpt_demo.png"
) -> dict[str, Any]:
    """Classify drawings with several methods, print how they differ from zero-shot, and draw the answers of each.

    The views of a drawing are encoded once for all methods.

    Args:
        style: one of the styles of ``load_tiny_drawings`` (default ``"noto-v1"``).
        n: number of drawings (default 300; None for all).
        seed: seed of their choice and of the views (default 0).
        out: file of the figure (default ``"tpt_demo.png"``).

    Returns:
        The printed numbers: ``n``, ``seconds`` per drawing for views and features, and ``methods``: for each its
        ``accuracy``, ``fixed`` and ``broken`` (indices of drawings), ``p`` (McNemar's test) and ``seconds`` per drawing.

    Raises:
        ValueError: if ``out`` does not end with a type of figure.
        FileNotFoundError: if the folder of ``out`` does not exist.
    """
    from tqdm import tqdm

    drawn = _can_draw(Path(out))
    model, drawings = load_tiny(), load_tiny_drawings(style, n=n, seed=seed)
    prompts = class_prompts(model, drawings.classes, template=drawings.template)
    print(
        f"{len(drawings)} drawings of {style}, a style the model was not trained on; {len(prompts.names)} class names"
    )
    entries = {name: get_method(name) for name in METHODS}
    said: dict[str, list[str]] = {name: [] for name in METHODS}
    spent = dict.fromkeys(["views", *METHODS], 0.0)
    for image, _ in tqdm(drawings.samples, "classify", unit="drawing"):
        start = time.perf_counter()
        features = encode_views(model, augment_views(image, model.image_spec, seed=seed))
        spent["views"] += time.perf_counter() - start
        for name, entry in entries.items():
            predict: Any = entry.predict
            start = time.perf_counter()
            said[name].append(predict(model, prompts, features).label)
            spent[name] += time.perf_counter() - start
    truths = [drawings.classes[label] for label in drawings.labels]
    told: dict[str, Any] = {"n": len(truths), "seconds": spent["views"] / len(truths), "methods": {}}
    for name, answers in said.items():
        told["methods"][name] = {**_against(said["zero_shot"], answers, truths), "seconds": spent[name] / len(truths)}
    print(
        f"\n{_table(told)}\n{1000 * told['seconds']:.0f} ms per drawing for its views and their features, shared by all"
    )
    shown = _changed(told)
    if drawn and shown:
        answers_of = {entries[name].title: [said[name][i] for i in shown] for name in METHODS}
        images = [drawings.samples[i][0] for i in shown]
        plot_gallery(images, [truths[i] for i in shown], answers_of).savefig(out)
        print(f"wrote {out}: drawings that methods fix, then drawings that they break")
    elif drawn:
        print("no figure: no method changed whether an answer is right")
    return told


def _against(before: Sequence[str], after: Sequence[str], truths: Sequence[str]) -> dict[str, Any]:
    """Return the accuracy of answers, and how they differ from those of zero-shot."""
    each = list(enumerate(zip(before, after, truths, strict=True)))
    fixed = [i for i, (b, a, truth) in each if a == truth != b]
    broken = [i for i, (b, a, truth) in each if b == truth != a]
    right = sum(a == truth for a, truth in zip(after, truths, strict=True))
    return {
        "accuracy": right / len(truths),
        "fixed": fixed,
        "broken": broken,
        "p": mcnemar(len(fixed), len(broken)),
    }


def _table(told: dict[str, Any]) -> Table:
    rows = [
        {
            "method": get_method(name).title,
            "accuracy": f"{own['accuracy']:.1%}",
            "fixed": len(own["fixed"]),
            "broken": len(own["broken"]),
            "p (McNemar)": f"{own['p']:.2g}",
            "ms per drawing": f"{1000 * own['seconds']:.1f}",
        }
        for name, own in told["methods"].items()
    ]
    return Table(tuple(rows))


def _changed(told: dict[str, Any]) -> list[int]:
    """Return the drawings to show: those that most methods fix, then those that most methods break."""
    found: list[int] = []
    for kind in ("fixed", "broken"):
        each = [i for own in told["methods"].values() for i in own[kind]]
        ranked = sorted({*each} - {*found}, key=lambda i: (-each.count(i), i))
        found += ranked[:SHOWN]
    return found


def _can_draw(out: Path) -> bool:
    """Return whether a figure can be drawn, and refuse a file that it cannot be written to."""
    try:
        require_matplotlib()
    except ImportError as error:
        print(f"no figure: {error}")
        return False
    from matplotlib.backend_bases import FigureCanvasBase

    if out.is_dir() or not out.absolute().parent.is_dir():
        raise FileNotFoundError(f"demo: out={str(out)!r} must be a file in an existing folder")
    if out.suffix[1:].lower() not in FigureCanvasBase.filetypes:
        raise ValueError(f"demo: out={str(out)!r} must end with .png, .pdf, .svg or another type of figure")
    return True
