"""Measure every method on held-out drawings and write docs/methods.md: ``python scripts/methods.py``.

The numbers go to ``docs/methods.json``, the page comes from that file and from the registry of methods. It takes about ten
minutes on one core; ``--only NAME`` measures some methods and keeps the numbers of the others. ``--tables`` measures nothing
and writes the page only; ``--check`` fails if it is stale. ``scripts/figures.py`` draws the figure.
"""

from __future__ import annotations

import argparse
import inspect
import json
import re
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType
from typing import Any

import tpt_lib
from tpt_lib.evaluation.data.registry import STYLES
from tpt_lib.evaluation.published import follower_numbers
from tpt_lib.methods import MethodEntry, OnlineMethod

sys.path.append(str(Path(__file__).parent))
from method_tables import on_drawings
from pages import write_or_check

ROOT = Path(__file__).parents[1]
PAGE, NUMBERS = ROOT / "docs/methods.md", ROOT / "docs/methods.json"
DEFAULTS = {"drawings": 60, "views": 64}
HEAD = ("name", "title", "function", "needs", "paper", "published", "what it does")
TEMPLATE = """# Methods

These are all registered methods. `classify`, `compare`, `evaluate` and the command line take a method by its *name*. Tables
and reports show its *title*. Reports also show the numbers of the row that is named under *published*, from [the
paper](reproducing.md) or, for later methods, from [other sources](#published-numbers). [Comparing
methods](comparing.md#methods-after-tpt) says when to use which. `python scripts/methods.py` writes this page from the registry
and from runs on the embedded model.

{table}

These learn from a stream, so results depend on the order of the images. [Streams of images](streams.md) has more on them:

{online}

The confidences of {votes} are shares of votes or scores, not probabilities, so reports leave their calibration empty.

`tpt.list_methods()` and `tpt.list_methods(online=True)` return the names, `tpt.get_method(name)` returns an entry, and
`tpt-lib methods` prints the registry.

Some functions are not in the registry because they have another shape: `methods.prompt_ensemble_predict` takes several
prompts, `memo_classify` takes any classifier, and `bongard_tpt` and `bongard_prototype` take the images of a problem.
`fit_coop` and `fit_cocoop` learn prompts, which every method can use.

## Settings of the authors

Defaults are the authors' settings for ImageNet. `preset="imagenet-a"` in `classify`, `compare`, `evaluate` and `get_method`
gives those for another dataset of the paper, and `evaluate(…, preset="dataset")` those for the dataset that is evaluated. A
keyword of `functools.partial` takes precedence over a preset, and a preset takes precedence over a default.

{presets}

## Published numbers

Top-1 accuracy and calibration error (ECE) in percent, as published. They are not measured here, and sources differ in texts,
views and data. *ood* is the mean of ImageNet's four variants, and *fine-grained* is the mean of the ten sets of the paper's
table 2.

{published}

RLCF's reward, ViT-L/14, is more accurate alone than the smaller model that it rewards.

{drawings}

## Two contracts

**Episodic**: `method(model, prompts, features) -> Prediction` (`methods.Method`). `features` are the features of one image's
views `(N, E)`, with the plain image in row 0, or of several images `(B, N, E)`. Nothing carries over from one image to
the next, so order, batches, workers and ranks do not change results. The methods of the first table are episodic.

**Online**: `methods.OnlineMethod` is a fold over a stream of images. `init(model, prompts)` returns a state, and
`step(model, prompts, state, features)` returns the next state and a `Prediction`. A state is a frozen dataclass of tensors
whose shapes never change, so it can be saved. Results depend on the images' order. `methods.stream` and `evaluate` run online
methods, and `classify` takes a list of images as a stream; `compare` refuses them. [Streams of images](streams.md) has more.

A method declares what it *needs*: `"features"` for the features of one image's views, `"views"` for the views themselves,
`"images"` for a batch of images, or `"reward"` for a second model. A method that needs views is called as
`method(model, prompts, views)` with the views `(N, 3, H, W)` of one image. A method that needs a reward is called as
`method(model, prompts, features, reward=…)` with a list of similarities `(N, K)`, or `(B, N, K)`, one for each reward model.

[Comparing methods](comparing.md#a-method-of-your-own) shows how to add one.
"""


def entries(*, online: bool = False) -> list[MethodEntry]:
    return [tpt_lib.get_method(name) for name in tpt_lib.list_methods(online=online)]


def address(function: object) -> str:
    """The public name of a function, flat or in the room of methods."""
    rooms: list[tuple[str, ModuleType]] = [("", tpt_lib), ("methods.", tpt_lib.methods)]
    for prefix, room in rooms:
        for name in room.__all__:
            if getattr(room, name) is function:
                return f"{prefix}{name}"
    raise SystemExit(f"{function!r} is a registered method without a public name; add it to methods/__init__.py")


def summary(function: object) -> str:
    """The first sentence of a docstring, in Markdown."""
    text = " ".join((inspect.getdoc(function) or "").split("\n\n")[0].split())
    text = re.sub(r":math:`(.*?)`", r"$\1$", text.split(". ")[0].rstrip("."))
    return text.replace("``", "`")


def row(entry: MethodEntry) -> tuple[str, ...]:
    step = entry.predict.step if isinstance(entry.predict, OnlineMethod) else entry.predict
    needs = ", ".join(entry.needs)
    return (
        f"`{entry.name}`", entry.title, f"`{address(entry.predict)}`", needs, entry.paper, entry.published or "-",
        summary(step).removeprefix(f"Return {entry.title}: "),
    )  # fmt: skip


def page(found: dict[str, Any]) -> str:
    """Return the page, made from the registry and the numbers."""
    *votes, last = (f"`{entry.name}`" for entry in all_entries() if not entry.probabilities)
    options = "".join(f" --{name} {found[name]}" for name in DEFAULTS if found[name] != DEFAULTS[name])
    return TEMPLATE.format(
        table=registry(entries()),
        online=registry(entries(online=True)),
        votes=f"{', '.join(votes)} and {last}",
        presets=table(presets()),
        published=table(published()),
        drawings=on_drawings(found, entries(), entries(online=True), options),
    )


def all_entries() -> list[MethodEntry]:
    return [*entries(), *entries(online=True)]


def registry(listed: Iterable[MethodEntry]) -> str:
    return table([HEAD, tuple("---" for _ in HEAD), *map(row, listed)])


def table(rows: Iterable[tuple[str, ...]]) -> str:
    return "\n".join("| " + " | ".join(cells) + " |" for cells in rows)


def presets() -> list[tuple[str, ...]]:
    """One row per method and settings, with the datasets that they are for."""
    rows: list[tuple[str, ...]] = [("method", "datasets", "settings"), ("---",) * 3]
    for entry in all_entries():
        datasets: dict[str, list[str]] = {}
        for dataset, keywords in entry.presets.items():
            datasets.setdefault(", ".join(f"`{name}={value}`" for name, value in keywords.items()), []).append(dataset)
        rows += [(entry.title, ", ".join(names), settings) for settings, names in datasets.items()]
    return rows


def published() -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = [("method", "model", "setting", "top-1", "ECE", "source"), ("---",) * 6]
    for line in follower_numbers():
        numbers = [
            ", ".join(f"{name.removeprefix('average: ')} {v:g}" for name, v in of.items())
            for of in (line.top1, line.ece)
        ]
        rows.append((line.method, line.model, line.setting or "-", numbers[0] or "-", numbers[1] or "-", line.source))
    return rows


def numbers(arguments: argparse.Namespace) -> dict[str, Any]:
    """Run the methods and return the numbers; with ``--only``, together with those that are known of the others."""
    from bench import machine
    from method_runs import ORDERS, SEEDS, measure

    its, settings = machine(), {name: getattr(arguments, name) for name in DEFAULTS}
    known: dict[str, Any] = {}
    if arguments.only:
        before = json.loads(NUMBERS.read_text(encoding="utf-8"))
        known = before["methods"]
        if differing := [name for name in settings if settings[name] != before[name]]:
            shown = " ".join(f"--{name} {before[name]}" for name in differing)
            raise SystemExit(f"--only adds to {NUMBERS.name}, which was measured with {shown}: pass that")
    with tempfile.TemporaryDirectory() as folder:
        found = measure(Path(arguments.store or folder), **settings, only=arguments.only)
    on = f"{its['processor']}, torch {its['torch']}, {its['date']}"
    return {
        **settings,
        "names": len(tpt_lib.load_tiny_drawings(n=1).classes),
        "styles": list(STYLES),
        "seeds": list(SEEDS),
        "orders": list(ORDERS),
        "methods": known | {name: own | {"machine": on} for name, own in found.items()},
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tables", action="store_true", help="measure nothing; write the page from docs/methods.json")
    parser.add_argument("--check", action="store_true", help="write nothing; exit with 1 if the page would change")
    parser.add_argument("--drawings", type=int, default=DEFAULTS["drawings"], help="names drawn in each style")
    parser.add_argument("--views", type=int, default=DEFAULTS["views"], help="views of each drawing")
    parser.add_argument("--store", metavar="FOLDER", help="keep features and runs here, and resume them")
    parser.add_argument("--only", nargs="+", metavar="NAME", help="measure these methods and keep the other numbers")
    arguments = parser.parse_args()
    if not (arguments.tables or arguments.check):
        NUMBERS.write_text(json.dumps(numbers(arguments), indent=1) + "\n", encoding="utf-8")
    if arguments.check and not PAGE.exists():
        print(f"{PAGE} is missing: run python scripts/methods.py --tables")
        return 1
    new = page(json.loads(NUMBERS.read_text(encoding="utf-8")))
    return write_or_check(PAGE, new, check=arguments.check, command="python scripts/methods.py --tables")


if __name__ == "__main__":
    sys.exit(main())
