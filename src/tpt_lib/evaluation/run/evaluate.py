"""Methods over a dataset: views in worker processes, one encoding for all methods, one row per sample on disk."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, Literal, get_args

from typing_extensions import Unpack

from tpt_lib.evaluation.data.eval_set import EvalSet
from tpt_lib.evaluation.report import Report
from tpt_lib.evaluation.run.distributed import merge_shares, ray_rows, share
from tpt_lib.evaluation.run.progress import ProgressBar
from tpt_lib.evaluation.run_file import Row, RunFile, error_row, method_result, result_row, run_header
from tpt_lib.evaluation.run_identity import describe
from tpt_lib.features.encode import encode_views
from tpt_lib.models.identity import identify
from tpt_lib.models.protocol import ClipLike
from tpt_lib.prompts.class_prompts import ClassPrompts, class_prompts
from tpt_lib.types import PathLike, UnseededViewOptions
from tpt_lib.views.settings import ViewSettings

__all__ = ["evaluate"]

Backend = Literal["local", "ray"]


class EvaluateOptions(UnseededViewOptions, total=False):
    """The keywords of ``evaluate``, for functions that pass them on."""

    seeds: Sequence[int]
    prompts: ClassPrompts | None
    batch_size: int
    num_workers: int | None
    backend: Backend
    strict: bool
    progress: bool | None


def evaluate(
    model: ClipLike,
    dataset: EvalSet,
    methods: Methods,
    *,
    out: PathLike,
    seeds: Sequence[int] = (0,),
    prompts: ClassPrompts | None = None,
    batch_size: int = 1,
    num_workers: int | None = None,
    backend: Backend = "local",
    strict: bool = False,
    progress: bool | None = None,
    **views: Unpack[UnseededViewOptions],
) -> Report:
    """Evaluate one method or several on a dataset, with one encoding of each sample's views for all of them.

    Run again with the same ``out``, it resumes where it was stopped or killed; a finished run is only read. ``batch_size`` and
    ``num_workers`` affect speed, never results.

    Args:
        model: the model.
        dataset: what ``load_dataset`` returned, or ``EvalSet("mine", samples, classes)``.
        methods: a name from ``list_methods()``, a function, or a list of them; or a dict from the name in the report to
            either of these, or to a pair of a method and its own prompts, as ``{"CoOp": ("zero_shot", coop)}``.
        out: the run file, one JSON object per line: settings first, then a row for each seed and sample, flushed.
        seeds: seeds of the views (default one, 0); the report has means and deviations over them.
        prompts: the prompts of the methods; by default the dataset's classes in its template.
        batch_size: number of samples given to a method together (default 1).
        num_workers: number of processes that make views while the model encodes; 0 for none. By default 2, but none on a CPU,
            where they would take the model's cores. With Ray, the number of actors, which do all of the work.
        backend: ``"local"`` (default), or ``"ray"`` for a Ray cluster. Under ``torchrun`` each rank takes its share, and the
            shares are merged.
        strict: stop at an image that cannot be used; by default it becomes a row with its error.
        progress: show a bar with the accuracy so far; by default only on a terminal.
        **views: the keywords of ``augment_views`` except ``seed``; the recipe is the dataset's by default.

    Returns:
        The report of the run.

    Raises:
        ValueError: if ``out`` belongs to a run with different settings.

    >>> data = tpt_lib.EvalSet("noise", [(torch.rand(3, 40, 60), 0), (torch.rand(3, 40, 60), 1)], ("cat", "dog"))
    >>> report = evaluate(model, data, ["zero_shot", "tpt"], out=f"{folder}/run.jsonl", n_views=4, num_workers=0)
    >>> [(row["method"], row["n"]) for row in report.rows()]
    [('zero-shot', 2), ('TPT', 2)]
    """
    if "seed" in views:
        raise TypeError("evaluate: pass the seeds of the views as seeds=[0, 1, …], not as seed=")
    options: Any = {"recipe": dataset.recipe, **views}
    settings = ViewSettings.of("evaluate", **options)
    prompts = class_prompts(model, dataset.classes, template=dataset.template) if prompts is None else prompts
    cases = as_cases("evaluate", methods, prompts)
    _check(prompts, dataset, seeds, batch_size, backend)
    if num_workers is None:
        num_workers = 0 if backend == "local" and prompts.context.device.type == "cpu" else 2
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


def _missing_rows(
    backend: Backend, work: Work, run: RunFile, part: tuple[int, int], batch_size: int, num_workers: int
) -> Iterator[list[Row]]:
    """Yield the rows that the run does not have yet, in order."""
    rank, ranks = part
    for seed in run.header["seeds"]:
        done = {row["sample"] for row in run.rows if row["seed"] == seed}
        left = [i for i in range(rank, run.header["n"], ranks) if i not in done]
        if backend == "ray":
            groups = [(seed, left[first : first + batch_size]) for first in range(0, len(left), batch_size)]
            yield from ray_rows(work, groups, max(1, num_workers), work.device)
        else:
            items = work.items(seed, left, num_workers)
            while group := list(islice(items, batch_size)):
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
            f"evaluate: at least one seed and a batch_size of 1 are needed, but got {len(seeds)} seeds and {batch_size}"
        )
    if len(prompts.names) != len(dataset.classes):
        raise ValueError(
            f"evaluate: the prompts have {len(prompts.names)} classes and the dataset {len(dataset.classes)}"
        )
