"""Run TPT on the embedded model's drawings, and show it as text and as a figure."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from tpt_lib.evaluation.significance import mcnemar
from tpt_lib.features.encode import encode_views
from tpt_lib.logits import class_logits
from tpt_lib.methods.tpt import tpt_predict
from tpt_lib.plots.figure import require_matplotlib
from tpt_lib.plots.prediction import plot_prediction
from tpt_lib.prompts.class_prompts import class_prompts
from tpt_lib.text.encode import encode_prompts
from tpt_lib.tiny.drawings import load_tiny_drawings
from tpt_lib.tiny.model import load_tiny
from tpt_lib.views.augment import augment_views

FIXED, BROKEN = 4, 2  # numbers of changed predictions that are printed


def demo(
    *, style: str = "noto-v1", n: int | None = None, seed: int = 0, out: str | Path = "tpt_demo.png"
) -> dict[str, Any]:
    """Classify drawings with and without TPT, print how the answers differ, and draw the largest change.

    Args:
        style: one of the styles of ``load_tiny_drawings`` (default ``"noto-v1"``).
        n: number of drawings (default all).
        seed: determines their choice and the views (default 0).
        out: file of the figure (default ``"tpt_demo.png"``).

    Returns:
        What was printed, as numbers: ``n``, ``zero_shot`` and ``tpt`` (accuracies), ``fixed`` and ``broken`` (indices of
        drawings), ``p`` (McNemar's test) and ``seconds`` per drawing.

    Raises:
        ValueError: if ``out`` does not end with a type of figure.
        FileNotFoundError: if the folder of ``out`` does not exist.
    """
    from tqdm import tqdm

    drawn = _can_draw(Path(out))
    model, drawings = load_tiny(), load_tiny_drawings(style, n=n, seed=seed)
    n = len(drawings)
    prompts = class_prompts(model, drawings.classes, template=drawings.template)
    print(f"{n} drawings of {style}, a style the model was not trained on; {len(prompts.names)} class names")

    def features(i: int) -> Any:
        return encode_views(model, augment_views(drawings.samples[i][0], model.image_spec, seed=seed))

    start = time.perf_counter()
    after: list[Any] = [tpt_predict(model, prompts, features(i)) for i in tqdm(range(n), "TPT", unit="drawing")]
    told: dict[str, Any] = {"n": n, "seconds": (time.perf_counter() - start) / n}
    before = [said.zero_shot for said in after]
    truths = [drawings.classes[label] for label in drawings.labels]
    told["fixed"] = [i for i in range(n) if after[i].label == truths[i] != before[i].label]
    told["broken"] = [i for i in range(n) if after[i].label != truths[i] == before[i].label]
    for name, said in {"zero_shot": before, "tpt": after}.items():
        told[name] = sum(one.label == truth for one, truth in zip(said, truths, strict=True)) / n
    told["p"] = mcnemar(len(told["fixed"]), len(told["broken"]))
    print(
        f"\n  zero-shot  {told['zero_shot']:.1%}\n  TPT        {told['tpt']:.1%}   {len(told['fixed'])} fixed, "
        f"{len(told['broken'])} broken, McNemar p = {told['p']:.2g}\n  {told['seconds']:.2f} s per drawing\n"
    )
    clearest = sorted(told["fixed"], key=lambda i: -float((after[i].probs - before[i].probs)[after[i].index]))
    shown = [*clearest[:FIXED], *told["broken"][:BROKEN]]
    rows = [(truths[i], *(f"{one.label} {one.probs.max():.2f}" for one in (before[i], after[i]))) for i in shown]
    for row in [("drawing", "zero-shot", "TPT"), *rows] if rows else []:
        print("  " + "".join(cell.ljust(26) for cell in row).rstrip())
    i = shown[0] if shown else 0
    if drawn:
        texts = [encode_prompts(model, prompts, context) for context in (None, after[i].context)]
        views = [class_logits(model, features(i), text) for text in texts]
        plot_prediction(after[i], drawings.samples[i][0], *views, truth=truths[i]).savefig(out)
        print(f"\nwrote {out}")
    return told


def _can_draw(out: Path) -> bool:
    """Return whether there will be a figure, and refuse a file that it could not be written to."""
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
