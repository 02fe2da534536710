"""Turn what ``scripts/method_runs.py`` measured into the tables of docs/methods.md."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean, median, stdev
from typing import Any

from tpt_lib.evaluation.published import find_number, follower_numbers
from tpt_lib.evaluation.table import Table
from tpt_lib.methods import MethodEntry

BASELINE = "zero_shot"
BACKBONE = "ViT-B/16"
COSTLY = {"dynaprompt": "takes half an hour, so only `--only dynaprompt` measures it"}
COLUMNS = ("accuracy", "gain", "fixed / broken", "p", "ECE", "ms", "launches", "MB")
Numbers = Mapping[str, Any]
SECTION = """## On drawings

Each method was run on the [embedded model](tiny.md) with its defaults. The drawings are {drawings} names, evenly spaced over
the {names} of the vocabulary, in each of the {styles} held-out styles: {n} drawings in all. All {names} names are classes. Each
drawing has {views} crops, in a store of features in float32. {machines} The command was `python scripts/methods.py{options}`.

A gain here shows that the method works as it should on images that the model was not trained for. It does not show how much
the method gains on photographs, with a larger model, or with other classes. This is one small model, emoji and one
vocabulary; the model's training was chosen on noto-v1, one of the styles. Nearly every crop of a drawing shows the object,
unlike crops of a photograph. Published gains are no better a guide: under a common protocol, with RN50 and the same texts
and views, later work (*The Illusion of Progress?*, 2025) finds at most about 1.5 points over TPT for any of these methods.
Compare methods on your own data:

<!-- not run: FOLDER is a folder of yours -->
```bash
tpt-lib compare --dataset FOLDER --methods all
```

{measured}

RLCF is rewarded by the model itself, as no second one is embedded; its authors use a larger CLIP.

{verdict}

{not_measured}

The columns:

- *accuracy*: percent over all drawings, mean and standard deviation over {seeds} seeds of the views.
- *gain*: points over zero-shot with a 95% interval, paired by drawing. The value of a drawing is its mean over seeds,
  because its seeds are not independent. The interval is too narrow where few drawings differ; *p* is exact.
- *fixed / broken*: drawings that only the method got right / that only zero-shot got right; mean over seeds.
- *p*: McNemar's exact test against zero-shot over all drawings, for each seed; median (min-max).
- *ECE*: calibration error in percent, 15 bins. Empty where confidences are votes or scores.
- *ms*: milliseconds of processor time per image of the method alone, one image at a time on one thread; median (min) of
  {timed} images. Views and features are shared by all methods and not included, nor is what the first image computes, such
  as the texts of a template ensemble. [Speed and memory](benchmarks.md) has times on a quiet machine.
- *launches*: operations that one image launches on a simulated accelerator, with a text tower of ViT-B/16's depth, 200
  classes and 64 views, as in [the page on GPUs](gpu.md#what-is-counted).
- *MB*: peak memory above what was held before an image. Small peaks are below the noise.
- *published*: top-1 of CLIP ViT-B/16 on ImageNet and on average over its four variants. A star marks other texts or a
  reward; [the table above](#published-numbers) has settings and sources.

![Accuracy over milliseconds per image, one point per method](figures/methods.png)

Accuracy by style, mean and standard deviation over seeds:

{by_style}

### Streams of drawings

Online methods see all {n} drawings of the {styles} styles as one stream, in {orders} shuffled orders, each with its own
views. A name comes {styles} times, once per style. TENT has no views: it learns from batches of 16 plain drawings, and its
milliseconds include encoding them, forward and backward. Deviations are over orders. The columns are as above.

{streamed}

{stream_verdict}

{stream_not_measured}

Accuracy in each order:

{by_order}

The same in a stream of each style alone, in which a name comes once, so a cache seldom has an image of the right class:

{alone}"""


def three_digits(number: float) -> str:
    return f"{number:,.0f}" if number >= 1000 else f"{number:.3g}"


def on_drawings(
    found: Mapping[str, Any], episodic: Sequence[MethodEntry], online: Sequence[MethodEntry], options: str
) -> str:
    """Return the section about the runs.

    Args:
        found: what docs/methods.json has.
        episodic: the methods of the first table.
        online: those of the second.
        options: those of the command that measured, as it was called.
    """
    numbers, styles = found["methods"], found["styles"]
    machines = dict.fromkeys(one["machine"] for one in numbers.values())
    return SECTION.format(
        drawings=found["drawings"],
        names=found["names"],
        views=found["views"],
        styles=len(styles),
        n=found["drawings"] * len(styles),
        seeds=len(found["seeds"]),
        orders=len(found["orders"]),
        timed=len(numbers["zero_shot"]["seconds"]),
        machines="Measured on " + "; ".join(machines) + ".",
        options=options,
        measured=measured_table(episodic, numbers),
        verdict=verdict(episodic, numbers),
        not_measured=not_measured(episodic, numbers),
        by_style=style_table(episodic, numbers, styles),
        streamed=measured_table(online, numbers),
        stream_verdict=verdict(online, numbers),
        stream_not_measured=not_measured(online, numbers),
        by_order=orders_table(online, numbers),
        alone=style_table(online, numbers, styles, "alone"),
    )


def measured_table(entries: Sequence[MethodEntry], found: Mapping[str, Numbers]) -> str:
    """Return a row per method. One that was not measured has an empty row."""
    rows = [
        {
            "method": entry.title,
            **(cells(entry.name, found[entry.name]) if entry.name in found else dict.fromkeys(COLUMNS)),
            "published, ImageNet": published(entry, "imagenet"),
            "published, OOD": published(entry, "average: ood"),
        }
        for entry in entries
    ]
    kept = [name for name in rows[0] if not name.startswith("published") or any(row[name] for row in rows)]
    return Table(tuple({name: row[name] for name in kept} for row in rows)).to_markdown()


def cells(name: str, numbers: Numbers) -> dict[str, str | None]:
    paired = {
        "gain": f"{numbers['gain']:+.1f} ± {numbers['half']:.1f}",
        "fixed / broken": f"{fmean(numbers['fixed']):.1f} / {fmean(numbers['broken']):.1f}",
        "p": shown_p(numbers["p"]),
    }
    return {
        "accuracy": mean_deviation(numbers["accuracy"]),
        **(dict.fromkeys(paired) if name == BASELINE else paired),
        "ECE": None if numbers["ece"] is None else f"{numbers['ece']:.1f}",
        "ms": "{} ({})".format(*(three_digits(1000 * of(numbers["seconds"])) for of in (median, min))),
        "launches": None if numbers["launches"] is None else f"{numbers['launches']:.0f}",
        "MB": None if numbers["memory"] is None else f"{numbers['memory']:.0f}",
    }


def shown_p(values: Sequence[float]) -> str:
    """Return "median (min-max)"."""
    return f"{median(values):.2g} ({min(values):.2g}-{max(values):.2g})"


def mean_deviation(values: Sequence[float]) -> str:
    return f"{fmean(values):.1f}" + (f" ± {stdev(values):.1f}" if len(values) > 1 else "")


def published(entry: MethodEntry, dataset: str) -> str | None:
    """Return the published accuracy, with a star if it is not that of the method's defaults."""
    number = find_number(dataset, entry.published, BACKBONE) if entry.published else None
    if number is None:
        return None
    plain = number.source is None or number.source in {row.source for row in follower_numbers()}
    return f"{number.value:.1f}{'' if plain else '*'}"


def style_table(
    entries: Sequence[MethodEntry], found: Mapping[str, Numbers], styles: Sequence[str], key: str = "by_style"
) -> str:
    """Return the accuracy in each style, a row per method that was measured, zero-shot first."""
    rows = [(entry.title, found[entry.name][key]) for entry in entries if key in found.get(entry.name, ())]
    if BASELINE not in {entry.name for entry in entries}:
        rows.insert(0, ("zero-shot", found[BASELINE]["by_style"]))
    return Table(
        tuple({"method": title} | {style: mean_deviation(own[style]) for style in styles} for title, own in rows)
    ).to_markdown()


def orders_table(entries: Sequence[MethodEntry], found: Mapping[str, Numbers]) -> str:
    """Return the spread of the accuracy of online methods over orders."""
    rows = [
        {
            "method": entry.title,
            **{f"order {seed}": f"{value:.1f}" for seed, value in enumerate(found[entry.name]["accuracy"])},
            "max - min": f"{max(found[entry.name]['accuracy']) - min(found[entry.name]['accuracy']):.1f}",
        }
        for entry in entries
        if entry.name in found
    ]
    return Table(tuple(rows)).to_markdown()


def verdict(entries: Sequence[MethodEntry], found: Mapping[str, Numbers]) -> str:
    """Say whose interval excludes 0."""
    known = [(entry.title, found[entry.name]) for entry in entries if entry.name in found and entry.name != BASELINE]
    above = [title for title, own in known if own["gain"] > own["half"]]
    below = [title for title, own in known if own["gain"] < -own["half"]]
    return (
        f"The interval of the gain is above 0 for {listed(above)} and below 0 for {listed(below)}. The other "
        f"{len(known) - len(above) - len(below)} of {len(known)} methods cannot be told apart from zero-shot here.\n"
        f"About one in twenty such intervals misses the true value, and this table has {len(known)}."
    )


def not_measured(entries: Sequence[MethodEntry], found: Mapping[str, Numbers]) -> str:
    """Say which methods have an empty row, and why."""
    reasons: dict[tuple[str, ...], str] = {
        ("views",): "needs the views themselves, which a store of features does not have",
    }
    late = "has not been measured yet: `python scripts/methods.py --only {}`"
    lines = [
        f"- {entry.title} {reasons.get(entry.needs) or COSTLY.get(entry.name) or late.format(entry.name)}."
        for entry in entries
        if entry.name not in found
    ]
    return "\n".join(["Not measured:\n", *lines]) if lines else "All methods were measured."


def listed(words: Sequence[str]) -> str:
    return ", ".join(words) if words else "none"
