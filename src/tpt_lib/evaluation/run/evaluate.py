"""Methods over a dataset: views in worker processes, one encoding for all methods, one line a sample on disk."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any, Literal, get_args

import torch
from torch.utils.data import DataLoader, Dataset

from tpt_lib.evaluation.compare import takes_views, with_prompts
from tpt_lib.evaluation.data.eval_set import EvalSet
from tpt_lib.evaluation.report import Report
from tpt_lib.evaluation.run.distributed import merge_shares, ray_rows, share
from tpt_lib.evaluation.run.progress import ProgressBar
from tpt_lib.evaluation.run_file import Row, RunFile, error_row, method_result, result_row, run_header
from tpt_lib.evaluation.run_identity import describe
from tpt_lib.features.encode import encode_views
from tpt_lib.models.identity import identify
from tpt_lib.models.protocol import ClipLike, ImageSpec
from tpt_lib.prediction import Prediction
from tpt_lib.prompts.class_prompts import ClassPrompts, class_prompts
from tpt_lib.views.augment import augment_views

__all__ = ["evaluate"]

Method = Callable[..., Any]

Engine = Literal["local", "ray"]


def evaluate(
    method: Method | Mapping[str, Method | tuple[Method, Any]],
    dataset: EvalSet,
    *,
    model: ClipLike,
    out: str | os.PathLike[str],
    seeds: Sequence[int] = (0,),
    prompts: ClassPrompts | None = None,
    batch: int = 1,
    workers: int | None = None,
    engine: Engine = "local",
    strict: bool = False,
    progress: bool | None = None,
    **views: Any,
) -> Report:
    """Evaluate one method or several on a dataset, with one encoding of each sample's views for all of them.

    Run again with the same ``out``, it goes on where it was stopped, or killed; a finished run is read. Nothing but time
    depends on ``batch`` and ``workers``.

    Args:
        method: ``f(model, prompts, features)`` as ``tpt_predict`` is, or several by name; of a pair, the second are the prompts
            it is given instead. A method with the attribute ``takes_views`` is given views instead of features.
        dataset: what ``load_dataset`` returned, or ``EvalSet("mine", samples, classes)``.
        model: the model.
        out: the run file, one JSON object a line: settings first, then a row for each seed and sample, flushed.
        seeds: of the views; the report has means and deviations over them.
        prompts: those of the methods; by default the dataset's classes in its template.
        batch: how many samples are given to a method at once; above 1 it gets ``(B, N, E)`` and returns a list.
        workers: processes that make views while the model encodes, 0 for none; by default 2, but none on a CPU, where they
            would take the model's cores. With Ray, actors that do all of it.
        engine: ``"local"``, or ``"ray"`` for a Ray cluster. Under ``torchrun`` each rank takes its share, and they are merged.
        strict: stop at an image that cannot be used; by default it becomes a row with its error.
        progress: show a bar with the accuracy so far; by default on a terminal.
        **views: goes to ``augment_views`` (``n_views=``, ``recipe=``, …); the recipe is the dataset's by default.

    Raises:
        ValueError: if ``out`` is of a run with other settings.

    >>> data = tpt_lib.EvalSet("noise", [(torch.rand(3, 40, 60), 0), (torch.rand(3, 40, 60), 1)], ("cat", "dog"))
    >>> methods = {"zero-shot": tpt_lib.zero_shot_predict, "TPT": tpt_lib.tpt_predict}
    >>> report = evaluate(methods, data, model=model, out=f"{folder}/run.jsonl", n_views=4, workers=0)
    >>> [(row["method"], row["n"]) for row in report.rows()]
    [('zero-shot', 2), ('TPT', 2)]
    """
    prompts = class_prompts(model, dataset.classes, template=dataset.template) if prompts is None else prompts
    methods = method if isinstance(method, Mapping) else {getattr(method, "__name__", "method"): method}
    cases = {name: with_prompts(each, prompts) for name, each in methods.items()}
    views = {"n_views": 64, "recipe": dataset.recipe, **views}
    if workers is None:
        workers = 0 if engine == "local" and prompts.context.device.type == "cpu" else 2
    _check(prompts, dataset, cases, seeds, batch, engine)
    settings = {"views": {key: _shown(value) for key, value in views.items()}, **identify(model)}
    settings["methods"] = {name: describe(*case) for name, case in cases.items()}
    samples: Any = dataset.samples
    header = run_header(dataset.name, dataset.split, dataset.classes, cases, seeds, len(samples), settings)
    work = _Work(model, cases, samples, views, strict)
    rank, ranks = share()
    own = Path(out) if ranks == 1 else Path(f"{out}.rank{rank}")
    with (
        RunFile(own, header) as run,
        ProgressBar(run, len(seeds) * len(range(rank, header["n"], ranks)), progress) as bar,
    ):
        for rows in _engine(engine, work, run, (rank, ranks), batch, workers):
            run.append(rows)
            bar.add(rows)
    if ranks > 1:
        merge_shares(Path(out), [Path(f"{out}.rank{i}") for i in range(ranks)])
    return Report.read([out])


def _engine(
    engine: Engine, work: _Work, run: RunFile, part: tuple[int, int], batch: int, workers: int
) -> Iterator[list[Row]]:
    """The rows that are still missing, in order."""
    rank, ranks = part
    for seed in run.header["seeds"]:
        done = {row["sample"] for row in run.rows if row["seed"] == seed}
        left = [i for i in range(rank, run.header["n"], ranks) if i not in done]
        if engine == "ray":
            groups = [(seed, left[first : first + batch]) for first in range(0, len(left), batch)]
            yield from ray_rows(work.without_caches(), groups, max(1, workers), work.device)
        else:
            items = work.items(seed, left, workers)
            while group := list(islice(items, batch)):
                yield work.rows(seed, group)


@dataclass(frozen=True)
class _Work:
    """What is done with a sample, in this process or another."""

    model: ClipLike
    cases: Mapping[str, tuple[Method, Any]]
    samples: Any
    views: Mapping[str, Any]
    strict: bool

    def __call__(self, seed: int, samples: list[int]) -> list[Row]:
        return self.rows(seed, list(self.items(seed, samples, 0)))

    @property
    def device(self) -> torch.device:
        prompts = next(iter(self.cases.values()))[1]
        return (prompts[0] if isinstance(prompts, list | tuple) else prompts).context.device

    def without_caches(self) -> _Work:
        """For another process: kept graphs cannot go there."""
        fresh = {
            name: (f, [replace(one) for one in p] if isinstance(p, list | tuple) else replace(p))
            for name, (f, p) in self.cases.items()
        }
        return replace(self, cases=fresh)

    def items(self, seed: int, samples: list[int], workers: int) -> Iterator[_Item]:
        data = _Items(self.samples, samples, self.model.image_spec, {**self.views, "seed": seed})
        own = torch.Generator()  # else the loader draws from the caller's
        return iter(DataLoader(data, batch_size=None, num_workers=workers if samples else 0, generator=own))

    def rows(self, seed: int, group: list[_Item]) -> list[Row]:
        if self.strict and (bad := next((item for item in group if item.error), None)):
            raise ValueError(
                f"evaluate: sample {bad.sample} cannot be used: {bad.error}; strict=False makes a row of it"
            )
        rows = {i.sample: error_row(seed, i.sample, i.truth, i.error) for i in group}
        if good := [item for item in group if not item.error]:
            results, seconds = self.results(good)
            for i, item in enumerate(good):
                said = {name: method_result(each[i].logits) for name, each in results.items()}
                took = {name: each[i] for name, each in seconds.items()}
                rows[item.sample] = result_row(seed, item.sample, item.truth, said, took)
        return list(rows.values())

    def results(self, items: list[_Item]) -> tuple[dict[str, list[Prediction]], dict[str, list[float]]]:
        """Every method's predictions, and what each took an image."""
        start = time.perf_counter()
        views = [item.views.to(self.device) for item in items]
        features = torch.stack([encode_views(self.model, each) for each in views])
        seconds = {"views": [item.seconds for item in items], "features": _share(start, len(items))}
        found: dict[str, list[Prediction]] = {}
        for name, (method, prompts) in self.cases.items():
            start = time.perf_counter()
            if takes_views(method):
                found[name] = [method(self.model, prompts, each) for each in views]
            elif len(items) == 1:
                found[name] = [method(self.model, prompts, features[0])]
            else:
                found[name] = method(self.model, prompts, features)
            _check_found(name, found[name], len(items))
            seconds[name] = _share(start, len(items))
        return found, seconds


def _share(start: float, count: int) -> list[float]:
    return [(time.perf_counter() - start) / count] * count


class _Item:
    """What a worker made of a sample: its views, or why there are none."""

    def __init__(self, sample: int) -> None:
        self.sample = sample
        self.truth: int | None = None
        self.views = torch.empty(0)
        self.error = ""
        self.seconds = 0.0


class _Items(Dataset[_Item]):
    def __init__(self, samples: Any, chosen: list[int], spec: ImageSpec, options: dict[str, Any]) -> None:
        self.samples, self.chosen, self.spec, self.options = samples, chosen, spec, options

    def __len__(self) -> int:
        return len(self.chosen)

    def __getitem__(self, at: int) -> _Item:
        item = _Item(self.chosen[at])
        start = time.perf_counter()
        try:
            image, label = self.samples[item.sample]
            item.truth = int(label)
            item.views = augment_views(image, self.spec, **self.options)
        except Exception as error:  # whatever a dataset raises for a bad image is that sample's, and is reported
            item.error = f"{type(error).__name__}: {error}"
        item.seconds = time.perf_counter() - start
        return item


def _shown(value: Any) -> Any:
    return value if isinstance(value, int | float | str | bool | None) else getattr(value, "__qualname__", repr(value))


def _check(
    prompts: ClassPrompts, dataset: EvalSet, cases: Mapping[str, Any], seeds: Sequence[int], batch: int, engine: str
) -> None:
    if engine not in get_args(Engine):
        raise ValueError(f"evaluate: engine must be one of {', '.join(get_args(Engine))}, but got {engine!r}")
    if not cases or not seeds or batch < 1:
        raise ValueError(
            f"evaluate: at least one method, one seed and a batch of one are needed, but got {len(cases)}, {len(seeds)} and "
            f"{batch}"
        )
    if len(prompts.names) != len(dataset.classes):
        raise ValueError(
            f"evaluate: the prompts have {len(prompts.names)} classes and the dataset {len(dataset.classes)}"
        )


def _check_found(name: str, found: Any, count: int) -> None:
    if not isinstance(found, list) or len(found) != count or not all(isinstance(each, Prediction) for each in found):
        what = [type(each).__name__ for each in found[:3]] if isinstance(found, list) else type(found).__name__
        raise TypeError(
            f"evaluate: {name} must return a Prediction for the features of one image, and a list of {count} for {count}, but "
            f"it returned {what}; a method for one image at a time needs batch=1"
        )
