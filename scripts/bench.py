"""Run all benchmarks and write them up: ``python scripts/bench.py`` makes ``docs/benchmarks.md``, ``.json`` and figures.

It takes half an hour on 2 quiet cores; ``--quick --out FOLDER`` is a trial of a few minutes, whose numbers mean nothing.
``--only NAME`` runs one and keeps the figures of the others.
"""

from __future__ import annotations

import argparse
import datetime
import importlib.metadata
import io
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tpt_lib.evaluation.table import Table
from tpt_lib.plots.figure import AFTER, BEFORE, new_figure

ROOT = Path(__file__).parent.parent
RUNS = {  # the arguments of each benchmark, in full and for a trial
    "tpt": ("", "--pairs 2 --classes 20 --shortlisted 30 --m 5 --architecture ViT-S-32-alt"),
    "growth": ("", "--pairs 2 --quick"),
    "text": ("--classes 50 --growth 50 200 400 1000", "--pairs 2 --classes 10 --growth 5 10"),
    "methods": ("", "--pairs 2 --classes 20 --stream 3 6 --architecture ViT-S-32-alt"),
    "bongard": ("", "--pairs 1"),
    "views": ("", "--pairs 2"),
    "evaluate": ("--images 4", "--pairs 1 --images 2"),
    "store": ("", "--pairs 1 --quick"),
    "imports": ("", "--pairs 2"),
    "launches": ("", "--quick"),
}
PACKAGES = ("tpt_lib", "torch", "torchvision", "open_clip_torch", "pillow")
LABELS = {"classes": "classes K", "views": "views N", "steps": "steps", "images": "images"}


def run(names: Iterable[str], quick: bool, kept: dict[str, Any]) -> dict[str, Any]:
    """Run benchmarks, each in a process of its own, one after the other; return them with those that are kept."""
    found: dict[str, Any] = {"seconds": {}, "where": {}, **kept, "machine": machine(), "quick": quick}
    with tempfile.TemporaryDirectory() as folder:
        for name in names:
            arguments, start = RUNS[name], time.perf_counter()
            path = Path(folder) / f"{name}.json"
            command = [sys.executable, f"benchmarks/{name}.py", *arguments[quick].split(), "--json", str(path)]
            print("$", *command[1:-2], flush=True)
            subprocess.run(command, cwd=ROOT, check=True)
            found[name] = json.loads(path.read_text())
            found["seconds"][name] = time.perf_counter() - start
            found["where"][name] = f"{found['machine']['date']}, {found['machine']['processor']}"
    return found


def machine() -> dict[str, str]:
    """Return what the numbers depend on, without the name of the machine."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    processor = next(
        (line.split(":")[1].strip() for line in lines if line.startswith("model name")), platform.machine()
    )
    gigabytes = int(Path("/proc/meminfo").read_text().split()[1]) / 2**20
    return {
        "date": datetime.date.today().isoformat(),
        "processor": f"{os.cpu_count()} cores of {processor}, {gigabytes:.0f} GB, no GPU used",
        "python": platform.python_version(),
        **{package: importlib.metadata.version(package) for package in PACKAGES},
    }


def page(found: dict[str, Any]) -> str:
    """Return the page in Markdown."""
    its, growth, text = found["machine"], found["growth"], found["text"]
    versions = ", ".join(f"{name} {its[name]}" for name in ("python", *PACKAGES))
    minutes = f"{sum(found['seconds'].values()) / 60:.0f} minutes"
    trial = "**A trial: these numbers mean nothing.**\n\n" if found["quick"] else ""
    return f"""# Benchmarks

{trial}Written by `python scripts/bench.py` ({minutes}): {_where(found["where"])}; {versions};
float32, 2 threads unless stated otherwise. The measurements are in [benchmarks.json](benchmarks.json).
Times are median (min-max). Ratios are of runs interleaved in one process, taken round by round.

The floor of TPT is encoding its views: the image tower sees all of them, whatever is then done with the features. The floor
is measured as the bare module on ready views under `inference_mode`, in chunks of the size that is fastest.

## TPT against its floor

{found["tpt"]["model"]}, one image of 500x375, 64 views, ImageNet names. Rows named by K alone are tuning and prediction from
features. *TPT over its views* is (encoding + views + tuning) / encoding: the noise of encoding is larger than all the rest,
and both sides share it this way.

{_tpt(found["tpt"])}

## How the cost grows

{growth["model"]}, a small tower, so that many points take little time. Settings that are not varied: {_base(growth["base"])}.
*Floor* is the encoding of the same views alone, right before in the same round. Memory is the peak of the first run over
what was held before.

{_growth(growth)}

## The text features of one step

ViT-B/16's text tower, K={text["classes"]}, ImageNet names: the gradient in the context, then the features at the new context.
*Plain* runs every prompt through the tower, forward, backward and forward, as published implementations do. The features
differ by at most {text["difference"]:.0e}.

{_text(text)}

## The methods, from features

{_methods(found["methods"])}

## Bongard problems

RN50's text tower, 6 + 6 supports, 64 steps, image features given; the plain loop runs both prompts at full length in each
step. Memory: {found["bongard"]["memory_gb"]:.2f} GB over the process before.

{_against(found["bongard"]["times"], "plain loop", "faster than the plain loop", faster=True)}

## Views

64 views of a 500x375 photograph at 224, one thread, processor time, against the usual loop over PIL and torchvision.

{_views(found["views"])}

## The runner

ViT-S/32, 100 classes, 64 views: `evaluate` over a bare loop of `tpt_classify` on the same images.

{_against(found["evaluate"]["times"], "bare loop", "over the bare loop")}

## Feature stores

{_store(found["store"])}

## What an accelerator is asked to do

ViT-B/16's text tower on a simulated accelerator, counted and not timed; see [GPUs](gpu.md) for what each count means.

{_launches(found["launches"])}

## Importing

Time of `import tpt_lib` after torch, in fresh processes: {_spread(found["imports"]["times"]["import tpt_lib"])} s.
"""


def _tpt(found: dict[str, Any]) -> str:
    table = _against(found["times"], "views alone", "over the views alone")
    rows = [
        {
            "": name,
            "TPT over its views": _spread(values),
            "bar": found["bars"].get(name),
            "first image (s)": f"{found['first'][name]:.1f}",
            "memory (GB)": f"{found['memory_gb'][name]:.2f}",
        }
        for name, values in found["over"].items()
    ]
    beside = "; ".join(f"{name} {seconds:.3g} s" for name, seconds in found["beside"].items())
    return (
        f"{table}\n\nThe first image computes what the others use. Memory is over the loaded model, each in a process of its "
        f"own.\n\n{Table(tuple(rows)).to_markdown()}\n\nOne run each: {beside}."
    )


def _where(where: dict[str, str]) -> str:
    """Return the days and machines of the runs, with the names of the benchmarks if they differ."""
    names = {one: [name for name, its in where.items() if its == one] for one in sorted(set(where.values()))}
    return "; ".join(f"{', '.join(of)} on {one}" if len(names) > 1 else one for one, of in names.items())


def _growth(found: dict[str, Any]) -> str:
    parts = []
    for name, points in found["curves"].items():
        rows = [
            {
                LABELS[name]: value,
                "seconds": _spread(point["times"]),
                "floor": _spread(point["floor"]),
                "over the floor": _ratios(point["times"], point["floor"]),
                "memory (MB)": None if point["memory_mb"] is None else round(point["memory_mb"]),
            }
            for value, point in points.items()
        ]
        parts.append(f"![cost over {name}](benchmarks-{name}.png)\n\n{Table(tuple(rows)).to_markdown()}")
    return "\n\n".join(parts)


def _text(found: dict[str, Any]) -> str:
    rows = [
        {
            "K": row["classes"],
            "packed tokens": row["tokens"],
            "seconds": _spread(row["times"]),
            "ms per token": f"{1000 * statistics.median(row['times']) / row['tokens']:.2f}",
        }
        for row in found["growth"]
    ]
    memory = []
    for row in found["memory"]:
        chunk = f" in chunks of {row['chunk']}" if row["chunk"] else ""
        memory.append(f"K={row['classes']}{chunk}: {row['peak_gb'] - row['loaded_gb']:.2f} GB")
    return (
        f"{_against(found['times'], 'tpt_lib', 'over tpt_lib')}\n\n![text cost over tokens](benchmarks-tokens.png)\n\n"
        f"{Table(tuple(rows)).to_markdown()}\n\nMemory over the process with the model loaded, over three steps: "
        f"{'; '.join(memory)}."
    )


def _methods(found: dict[str, Any]) -> str:
    first, last = found["stream"]
    about = (
        f"{found['model']}, K={found['classes']}, 64 views of random features, one thread, processor time, with text features "
        "that are kept. Ratios are to `class_logits` of the same views, and for methods that tune a context to TPT. A step of "
        f"a stream must cost the same after {first:,} images and after {last:,}. A step of DMN-ZS copies its memory of 50 "
        "images per class once and reads it twice, which is most of its time."
    )
    rows = []
    for part, base in (("features", "class_logits"), ("context", "TPT"), ("steps", "class_logits")):
        for name, times in found[part]["times"].items():
            bar = found["bars"].get(name.split(",")[0])
            ratio = f"{_spread(found[part]['ratios'][name])}{'' if bar is None else f' (bar {bar:g})'}"
            rows.append({"": name, "ms": _spread([1000 * t for t in times]), "ratio": ratio, "to": base})
    return f"{about}\n\n{Table(tuple(rows)).to_markdown()}"


def _views(found: dict[str, Any]) -> str:
    rows = [
        {
            "recipe": recipe,
            "PIL loop (ms)": _spread([1000 * t for t in found[recipe]["times"]["PIL loop"]]),
            "tpt_lib (ms)": _spread([1000 * t for t in found[recipe]["times"]["tpt_lib"]]),
            "faster": _ratios(found[recipe]["times"]["PIL loop"], found[recipe]["times"]["tpt_lib"]),
            "memory (MB)": round(found[recipe]["memory_mb"]),
        }
        for recipe in ("crop", "augmix")
    ]
    return Table(tuple(rows)).to_markdown()


def _store(found: dict[str, Any]) -> str:
    bars, opened = found["bars"], found["opening"]
    kept, samples = found["classes"], found["samples"]
    rates = [
        {"method": method, "images per second": _spread(found["rates"][method], ",.0f"), "bar": f">= {bar:,}"}
        for method, bar in bars["rates"].items()
    ]
    reading = [
        f"{dtype}, reading all features (bar {bars['reading']}):\n\n{_against(times, 'memory map', 'over a memory map')}"
        for dtype, times in found["reading"].items()
    ]
    parts = [
        f"TPT of one image, {found['model']}, K={kept} (bar {bars['tpt']}):",
        _against(found["tpt"], "from images", "over that from images"),
        f"`evaluate` from a store of {samples:,} samples of 64 views into a run file, K={kept}, batches of 64:",
        Table(tuple(rates)).to_markdown(),
        *reading,
        f"Encoding an image into a new store, ViT-S/32 (bar {bars['filling']}), and what a call costs once, mostly to "
        "digest the weights:",
        _against(found["filling"], "encoding", "over encoding"),
        f"Opening a store of {opened['samples']:,} samples in a fresh process: {_spread(opened['seconds'])} s (bar "
        f"{bars['opening']['seconds']}) and {_spread(opened['megabytes'])} MB (bar {bars['opening']['megabytes']}).",
    ]
    return "\n\n".join(parts)


def _launches(found: dict[str, Any]) -> str:
    bars = {(each["call"], each["count"]): each["bar"] for each in found["bars"]}

    def shown(call: str, count: str) -> str:
        bar = f" (bar {bars[call, count]:,})" if (call, count) in bars else ""
        return f"{found['costs'][call][count]:,.0f}{bar}"

    titles = {
        "launches": "launches per image",
        "synchronizations": "synchronizations",
        "bytes_in": "bytes to the device per image",
        "bytes_from_worker": "bytes from a worker per image",
    }
    rows = [{"call": call, **{title: shown(call, count) for count, title in titles.items()}} for call in found["costs"]]
    return Table(tuple(rows)).to_markdown()


def _against(times: dict[str, list[float]], base: str, title: str, *, faster: bool = False) -> str:
    """Return a table with a row for each name: its times, and their ratio to those of ``base`` round by round."""
    rows = []
    for name, values in times.items():
        pair = (times[base], values) if faster else (values, times[base])
        rows.append({"": name, "seconds": _spread(values), title: _ratios(*pair)})
    return Table(tuple(rows)).to_markdown()


def _ratios(values: list[float], others: list[float]) -> str:
    return _spread([a / b for a, b in zip(values, others, strict=True)])


def _spread(values: list[float], digits: str = ".3g") -> str:
    return f"{statistics.median(values):{digits}} ({min(values):{digits}}-{max(values):{digits}})"


def _base(base: dict[str, int]) -> str:
    return ", ".join(f"{value} {name if value > 1 else name.removesuffix('s')}" for name, value in base.items())


def figures(found: dict[str, Any]) -> dict[str, bytes]:
    """Return a PNG of each curve, by file name."""
    drawn = {}
    for name, points in found["growth"]["curves"].items():
        lines = {"TPT": [p["times"] for p in points.values()], "its views alone": [p["floor"] for p in points.values()]}
        drawn[f"benchmarks-{name}.png"] = _curve(LABELS[name], [int(value) for value in points], lines)
    rows = found["text"]["growth"]
    tokens, times = [row["tokens"] for row in rows], [row["times"] for row in rows]
    drawn["benchmarks-tokens.png"] = _curve("packed tokens", tokens, {"text features of one step": times})
    return drawn


def _curve(label: str, values: list[int], lines: dict[str, list[list[float]]]) -> bytes:
    """Draw medians over values, with a band from minimum to maximum."""
    figure = new_figure(4.2, 2.8)
    axes = figure.subplots()
    for (name, runs), color in zip(lines.items(), (AFTER, BEFORE), strict=False):
        axes.plot(values, [statistics.median(times) for times in runs], marker="o", color=color, label=name)
        axes.fill_between(values, [min(t) for t in runs], [max(t) for t in runs], color=color, alpha=0.25, linewidth=0)
    axes.set(xlabel=label, ylabel="seconds", xlim=(0, None), ylim=(0, None))
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, fontsize=8)
    file = io.BytesIO()
    figure.savefig(file, format="png")
    return file.getvalue()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument(
        "--only", nargs="+", choices=list(RUNS), metavar="NAME", help="run these, keep what the JSON has of the others"
    )
    parser.add_argument("--out", type=Path, default=ROOT / "docs")
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    file = arguments.out / "benchmarks.json"
    kept = json.loads(file.read_text()) if arguments.only else {}
    if kept and kept["quick"] != arguments.quick:
        parser.error(
            f"{file} has figures of {'a trial' if kept['quick'] else 'full runs'}, which do not mix with these"
        )
    found = run(arguments.only or RUNS, arguments.quick, kept)
    file.write_text(json.dumps(found, indent=1) + "\n")
    (arguments.out / "benchmarks.md").write_text(page(json.loads(json.dumps(found))))
    for name, data in figures(found).items():
        (arguments.out / name).write_bytes(data)
    print(f"\n{sum(found['seconds'].values()) / 60:.1f} minutes; written to {arguments.out / 'benchmarks.md'}")


if __name__ == "__main__":
    main()
