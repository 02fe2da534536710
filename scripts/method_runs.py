"""Measure every method on the embedded model, for ``scripts/methods.py``: held-out drawings, from a store of features."""

from __future__ import annotations

import inspect
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import torch

import tpt_lib as tpt
from tpt_lib.evaluation.data.orders import shuffled_order
from tpt_lib.evaluation.data.registry import STYLES
from tpt_lib.evaluation.metrics import calibration_error
from tpt_lib.evaluation.profiling import measured
from tpt_lib.evaluation.run_file import Run
from tpt_lib.evaluation.run_summary import correct_answers
from tpt_lib.evaluation.significance import paired_counts
from tpt_lib.methods import MethodEntry

sys.path += [str(Path(__file__).parent), str(Path(__file__).parents[1] / "tests")]
from method_tables import BASELINE, COSTLY

SEEDS, ORDERS = (0, 1, 2), (0, 1, 2, 3, 4)
BATCH = 16  # images of which TENT learns together
TIMED = 11  # images of which a method's time and memory are taken; the first is left out
Found = dict[str, Any]
Correct = Mapping[int, Mapping[int, bool]]  # by seed and sample


def can_run(entry: MethodEntry) -> bool:
    """Return whether drawings of one model are all that a method needs."""
    return entry.needs in (("features",), ("features", "reward"), ("images",))


def needs_images(name: str) -> bool:
    return tpt.get_method(name).needs == ("images",)


def measure(folder: Path, *, drawings: int, views: int, only: Sequence[str] | None = None) -> dict[str, Found]:
    """Return what was found for each method that needs the features of drawings, or the drawings in batches.

    Args:
        folder: where the store and the run files are; a run that was stopped is resumed.
        drawings: number of drawings of each style, evenly spaced over the names. All styles have the same names.
        views: number of views of each drawing.
        only: names of the methods to measure (default None: all but those that take too long).

    Returns:
        The numbers of each method, by its name.
    """
    torch.set_num_threads(1)
    episodic, online = chosen_names(only)
    model, data = tpt.load_tiny(), all_styles(drawings)
    prompts = tpt.class_prompts(model, data.classes, template=data.template)
    store = said("store", lambda: tpt.encode_dataset(
        model, data, folder / "store", seeds=ORDERS, dtype="float32", n_views=views
    ))  # fmt: skip
    parts = {style: range(at * drawings, (at + 1) * drawings) for at, style in enumerate(STYLES)}
    found: dict[str, Found] = {}

    def run(methods: Sequence[str], source: Any, name: str, **options: Any) -> tpt.Report:
        out = folder / f"{name}-{'-'.join(methods)}.jsonl"
        rewarded = any("reward" in tpt.get_method(method).needs for method in methods)
        reward: Any = {"reward": (model, prompts)} if rewarded else {}  # no second model is embedded
        return said(
            name, lambda: tpt.evaluate(model, source, list(methods), out=out, prompts=prompts, **reward, **options)
        )

    if asked := [
        name for name in episodic if only is None or name in only
    ]:  # zero-shot runs in any case, for the pairs
        found |= summaries(run(episodic, store, "episodic", seeds=SEEDS, batch_size=8), asked, parts)
    of_images, online = [n for n in online if needs_images(n)], [n for n in online if not needs_images(n)]
    for name in of_images:
        found[name] = said(name, partial(of_batches, model, prompts, name, data, parts))
    if len(online) > 1:
        stream: Any = {"seeds": ORDERS, "order": "shuffle"}
        found |= summaries(run(online, store, "stream", **stream), online[1:], parts)
        in_each_style = [BASELINE, *(name for name in online[1:] if name not in COSTLY)]
        for style, part in parts.items() if in_each_style[1:] else ():
            report = run(in_each_style, store.select(list(part)), style, **stream)
            for name, alone in summaries(report, in_each_style[1:], {style: range(drawings)}).items():
                found[name].setdefault("alone", {}).update(alone["by_style"])
    from_features = [name for name in found if not needs_images(name)]
    counted = said("launches", lambda: launches(from_features))
    timed = store.features(range(0, len(store), max(1, len(store) // TIMED)))[:TIMED]
    for name, cost in said("costs", lambda: costs(model, prompts, from_features, timed)).items():
        found[name] |= {**cost, "launches": counted.get(name)}
    return found


def chosen_names(only: Sequence[str] | None) -> tuple[list[str], list[str]]:
    """Return the names of the episodic and of the online methods to run, each with zero-shot first."""
    for name in only or ():
        if not can_run(tpt.get_method(name)):
            raise SystemExit(f"--only {name}: it needs {' and '.join(tpt.get_method(name).needs)}, which are not there")

    def chosen(names: Sequence[str]) -> list[str]:
        found = [name for name in names if can_run(tpt.get_method(name)) and name != BASELINE]
        return [BASELINE, *(name for name in found if (name in only if only else name not in COSTLY))]

    return chosen(tpt.list_methods()), chosen(tpt.list_methods(online=True))


def all_styles(drawings: int) -> tpt.EvalSet:
    """Return drawings of the same names in each held-out style, one style after the other."""
    styles = [tpt.load_tiny_drawings(style) for style in STYLES]
    names = len(styles[0].classes)
    if not 1 <= drawings <= names:
        raise SystemExit(f"--drawings must be from 1 to {names}, but got {drawings}")
    samples = [style.samples[at * names // drawings] for style in styles for at in range(drawings)]
    return tpt.EvalSet("held-out drawings", samples, styles[0].classes)


def summaries(report: tpt.Report, names: Sequence[str], parts: Mapping[str, Sequence[int]]) -> dict[str, Found]:
    """Return the numbers of a run for each of these methods, in percent or points; lists have one for each seed."""
    (run,) = report.runs
    rows = {row["method"]: row for row in report.rows()}
    base = correct_answers(run, tpt.get_method(BASELINE).title)
    return dict(summarized(run, names, base, rows, parts))


def summarized(
    run: Run, names: Sequence[str], base: Correct, rows: Mapping[str, Any], parts: Mapping[str, Sequence[int]]
) -> Iterator[tuple[str, Found]]:
    for name in names:
        row = rows[tpt.get_method(name).title]
        own = correct_answers(run, tpt.get_method(name).title)
        yield name, {"n": row["n"], "errors": row["errors"], "ece": row["ece15"], **against(base, own, parts)}


def against(base: Correct, own: Correct, parts: Mapping[str, Sequence[int]]) -> Found:
    """Return accuracies, and what a method gains over others that saw the same samples with the same seeds."""
    pairs = [paired_counts(base[seed], own[seed]) for seed in own]
    gain, half = gain_interval(base, own)
    return {
        "accuracy": [100 * fmean(answers.values()) for answers in own.values()],
        "by_style": {
            style: [100 * fmean(answers[sample] for sample in part) for answers in own.values()]
            for style, part in parts.items()
        },
        "gain": gain,
        "half": half,
        "fixed": [pair["only_b"] for pair in pairs],
        "broken": [pair["only_a"] for pair in pairs],
        "p": [pair["p"] for pair in pairs],
    }


def of_batches(model: Any, prompts: Any, name: str, data: tpt.EvalSet, parts: Mapping[str, Sequence[int]]) -> Found:
    """Return the numbers of an online method that takes batches of images, with its seconds per image."""
    images = torch.stack([tpt.views.preprocess(data.samples[i][0], model.image_spec) for i in range(len(data))])
    labels = torch.tensor(data.labels)
    base: dict[int, dict[int, bool]] = {seed: {} for seed in ORDERS}
    own: dict[int, dict[int, bool]] = {seed: {} for seed in ORDERS}
    errors, seconds = [], []

    def run(samples: Sequence[int], seed: int) -> tuple[dict[int, bool], dict[int, bool], float]:
        """Return which samples the method and zero-shot got right, and the calibration error."""
        order = torch.tensor(samples)[shuffled_order(len(samples), seed)]
        batches, start = order.split(BATCH), time.process_time()
        done = list(tpt.methods.stream(name, model, prompts, (images[at] for at in batches)))
        seconds.append((time.process_time() - start) / len(order))
        logits = torch.cat([one.logits for one in done])
        before = torch.cat([one.zero_shot.logits for one in done])
        right, was = logits.argmax(dim=1) == labels[order], before.argmax(dim=1) == labels[order]
        by_sample = [dict(zip(order.tolist(), answers.tolist(), strict=True)) for answers in (right, was)]
        return by_sample[0], by_sample[1], 100 * calibration_error(logits.softmax(dim=1).amax(dim=1), right)

    for seed in ORDERS:
        own[seed], base[seed], error = run(range(len(data)), seed)
        errors.append(error)
    alone = {style: [100 * fmean(run(part, seed)[0].values()) for seed in ORDERS] for style, part in parts.items()}
    found = against(base, own, parts)
    costs = {"seconds": seconds[: len(ORDERS)], "memory": None, "launches": None}
    return {"n": len(data), "errors": 0, "ece": fmean(errors), **found, "alone": alone, **costs}


def gain_interval(base: Correct, own: Correct) -> tuple[float, float]:
    """Return the gain in points and half of its 95% interval.

    The interval is that of a paired mean over drawings, each with its mean over seeds: the seeds of a drawing are not
    independent.
    """
    samples = own[next(iter(own))]
    gains = [100 * fmean(own[seed][sample] - base[seed][sample] for seed in own) for sample in samples]
    return fmean(gains), 1.96 * stdev(gains) / len(gains) ** 0.5 if len(gains) > 1 else float("inf")


def costs(model: Any, prompts: Any, names: Sequence[str], images: torch.Tensor) -> dict[str, Found]:
    """Return the processor time of each image but the first, in seconds, and the peak memory in MB, for each method.

    The methods take turns, one image at a time, so that a slow moment of the machine affects all of them.
    """
    calls = {name: caller(model, prompts, name) for name in names}
    seconds: dict[str, list[float]] = {name: [] for name in names}
    for image in images:
        for name, call in calls.items():
            start = time.process_time()
            call(image)
            seconds[name].append(time.process_time() - start)
    device = prompts.context.device  # measuring memory takes time, so it comes after
    memory = {name: measured(partial(call, images[0]), device)[1].memory for name, call in calls.items()}
    return {name: {"seconds": seconds[name][1:], "memory": memory[name]} for name in names}


def caller(model: Any, prompts: Any, name: str) -> Callable[[torch.Tensor], object]:
    """Return a function that classifies the next image; that of an online method keeps the state."""
    predict: Any = tpt.get_method(name).predict
    if "reward" in tpt.get_method(name).needs:
        text = tpt.encode_prompts(model, prompts).detach()
        return lambda features: predict(model, prompts, features, reward=[features @ text.mT])
    if not tpt.get_method(name).online:
        return lambda features: predict(model, prompts, features)
    expects = {"expected": TIMED} if "expected" in inspect.signature(predict).parameters else {}
    online = predict(**expects)
    state = online.init(model, prompts)

    def step(features: torch.Tensor) -> None:
        nonlocal state
        state, _ = online.step(model, prompts, state, features)

    return step


def launches(names: Sequence[str]) -> dict[str, float]:
    """Return the operations that each method launches for an image on a simulated accelerator, where torch can simulate one."""
    from support.device_costs import launches_per_image
    from support.simulated import AVAILABLE

    return launches_per_image({name: lambda m, p, name=name: caller(m, p, name) for name in names}) if AVAILABLE else {}


def said(what: str, call: Callable[[], Any]) -> Any:
    start = time.perf_counter()
    result = call()
    print(f"{what}: {time.perf_counter() - start:.0f} s", flush=True)
    return result
