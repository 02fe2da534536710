"""Evaluate methods on a dataset: views in worker processes, one encoding for all methods, one row per sample on disk."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from itertools import islice, zip_longest
from pathlib import Path
from typing import Any, Literal, get_args

from typing_extensions import Unpack

from tpt_lib.evaluation.data.class_names import permutation
from tpt_lib.evaluation.data.data_identity import dataset_identity
from tpt_lib.evaluation.data.eval_set import EvalSet
from tpt_lib.evaluation.from_store import check_store, first_views, reward_names, store_of_model
from tpt_lib.evaluation.metrics import require_torchmetrics
from tpt_lib.evaluation.report import Report
from tpt_lib.evaluation.run.distributed import merge_shares, ray_rows, require_ray, share
from tpt_lib.evaluation.run.evaluate_stream import stream_rows, write_streams_on_ray
from tpt_lib.evaluation.run.progress import ProgressBar
from tpt_lib.evaluation.run.stream_plan import Streams, plan_stream
from tpt_lib.evaluation.run.work import Started, Work
from tpt_lib.evaluation.run_file import Header, Row, RunFile, check_resumable, run_header
from tpt_lib.evaluation.run_identity import describe
from tpt_lib.evaluation.run_lines import check_is_file
from tpt_lib.features.store import FeatureStore
from tpt_lib.methods.cases import Case, Methods, as_cases, rewards_of
from tpt_lib.methods.reward import Reward
from tpt_lib.models.identity import check_known, identify
from tpt_lib.models.protocol import ClipLike
from tpt_lib.prompts.class_prompts import ClassPrompts, class_prompts
from tpt_lib.text.stored import prompts_digest
from tpt_lib.types import PathLike, UnseededViewOptions
from tpt_lib.views.settings import ViewSettings

__all__ = ["evaluate"]

Backend = Literal["local", "ray"]


class EvaluateOptions(UnseededViewOptions, total=False):
    """The keywords of ``evaluate``, for functions that pass them on."""

    seeds: Sequence[int]
    prompts: ClassPrompts | None
    preset: str | None
    reward: Reward | None
    batch_size: int
    num_workers: int | None
    backend: Backend
    order: str | None
    streams: Streams | None
    strict: bool
    retry_errors: bool
    progress: bool | None


def evaluate(
    model: ClipLike,
    dataset: EvalSet | FeatureStore,
    methods: Methods,
    *,
    out: PathLike,
    seeds: Sequence[int] = (0,),
    prompts: ClassPrompts | None = None,
    preset: str | None = None,
    reward: Reward | None = None,
    batch_size: int = 1,
    num_workers: int | None = None,
    backend: Backend = "local",
    order: str | None = None,
    streams: Streams | None = None,
    strict: bool = False,
    retry_errors: bool = False,
    progress: bool | None = None,
    **views: Unpack[UnseededViewOptions],
) -> Report:
    """Evaluate one method or several on a dataset, with one encoding of each sample's views for all of them.

    A call with the ``out`` of a run that was stopped or killed resumes it; a finished run is only read. ``batch_size``,
    ``num_workers`` and ``backend`` affect speed, never results. Online methods, such as ``"tda"``, see the images as a stream
    in an order that is part of the run; their state is saved next to ``out`` until the run is finished.

    Args:
        model: the model.
        dataset: what ``load_dataset`` returned, or ``EvalSet("mine", samples, classes)``; or the store that ``encode_dataset``
            made of it; then only the model's text tower runs.
        methods: a name from ``list_methods()`` or ``list_methods(online=True)``, a function, or a list of them; or a dict from
            the name in the report to a method, or to a pair of a method and its own prompts, such as
            ``{"CoOp": ("zero_shot", coop)}``.
        out: the run file, one JSON object per line: the settings, then a row per seed and sample. Each row is flushed.
        seeds: seeds of the views and of the order (default ``(0,)``); the report has means and deviations over them.
        prompts: prompts of the methods (default: the dataset's classes in its template).
        preset: a dataset whose settings the methods take from their authors, such as ``"imagenet-a"``, or ``"dataset"`` for
            the one that is evaluated (default None: the methods' defaults). The run records the settings.
        reward: a pair (model, prompts) of a second CLIP, or a list of pairs, for methods that need a reward.
        batch_size: number of samples given to a method together (default 1).
        num_workers: number of processes that read images, and make their views if the model is on a CPU (default 2, or 0 if
            the model is on a CPU, where they would take its cores). With Ray, the number of actors, which do all of the work.
        backend: ``"local"`` (default), or ``"ray"`` for a Ray cluster. Under ``torchrun`` each rank takes its share of the
            samples, and the shares are merged.
        order: order of the stream, for online methods (default None: ``"shuffle"``, another one for each seed): also
            ``"dataset"``, ``"by-class"``, ``"dirichlet"`` (classes in bursts; ``"dirichlet:0.5"`` sets the concentration,
            default 0.1) or ``"domains"`` (one after another).
        streams: ``"per-rank"`` gives each rank of ``torchrun``, or each of ``num_workers`` workers of Ray, a stream of its own
            over its share, for online methods (default None: they are refused). Results then depend on their number.
        strict: whether to stop at an image that cannot be used (default False: record its error as a row).
        retry_errors: whether a resumed run tries every sample with an error again (default False: all but images that were
            refused with ``ImageError``; a missing file or a lack of memory may pass).
        progress: whether to show a bar with the accuracy so far (default: only on a terminal).
        **views: the keywords of ``augment_views`` except ``seed``; the recipe is the dataset's by default. Of the views of a
            store, ``n_views`` takes the first ones.

    Returns:
        The report of the run.

    Raises:
        ValueError: if ``out`` belongs to a run with different settings or is not a run file; it is not changed.
        BlockingIOError: if another process is writing ``out``.

    >>> data = tpt_lib.EvalSet("noise", [(torch.rand(3, 40, 60), 0), (torch.rand(3, 40, 60), 1)], ("cat", "dog"))
    >>> report = evaluate(model, data, ["zero_shot", "tpt"], out=f"{folder}/run.jsonl", n_views=4, num_workers=0)
    >>> [(row["method"], row["n"]) for row in report.rows()]
    [('zero-shot', 2), ('TPT', 2)]
    """
    if "seed" in views:
        raise TypeError("evaluate: pass the seeds of the views as seeds=[0, 1, …], not as seed=")
    check_is_file(out)
    require_torchmetrics()
    if isinstance(dataset, FeatureStore):
        dataset = first_views("evaluate", store_of_model("evaluate", dataset, model), **views)
        settings = ViewSettings(n_views=dataset.n_views)
    else:
        options: Any = {"recipe": dataset.recipe, **views}
        settings = ViewSettings.of("evaluate", **options)
    prompts = class_prompts(model, dataset.classes, template=dataset.template) if prompts is None else prompts
    preset = dataset.name if preset == "dataset" else preset
    cases = as_cases("evaluate", methods, prompts, preset=preset, reward=reward, online=True)
    if num_workers is None:
        num_workers = 0 if backend == "local" and prompts.context.device.type == "cpu" else 2
    _check(seeds, batch_size, num_workers, backend)
    _check_classes(prompts, cases, dataset)
    rank, ranks = share()
    streaming = max(1, num_workers) if backend == "ray" else ranks
    asked: Any = {"order": order, "streams": streams, "backend": backend, "retry_errors": retry_errors}
    stream = plan_stream(model, dataset, cases, seeds, streaming, **asked)
    cases = cases if stream is None else stream.cases
    names = [case.name for case in cases]
    rewards: tuple[str, ...] = ()
    if isinstance(dataset, FeatureStore):
        rewards = reward_names("evaluate", dataset, cases)
        check_store("evaluate", dataset, cases, seeds, rewards)
    samples: Any = dataset if isinstance(dataset, FeatureStore) else dataset.samples
    identity = _identity(model, dataset, cases, settings, preset)
    if stream is not None:
        identity["stream"] = stream.identity
    check_known("evaluate", identity, Path(out), Path(f"{out}.rank{rank}"))
    header = run_header(dataset.name, dataset.split, dataset.classes, names, seeds, len(samples), identity)
    work = Work(model, cases, samples, settings, strict, dataset.root, rewards)
    if stream is not None and backend == "ray":
        write_streams_on_ray(Path(out), header, work, stream, streaming, batch_size)
        return Report.read([out])
    part = range(rank, len(samples), ranks)

    def missing(run: RunFile) -> Iterator[list[Row]]:
        if stream is None:
            return _missing_rows(backend, work, run, batch_size, num_workers)
        return stream_rows(work, run, stream, part, batch_size, num_workers)

    _write(Path(out), header, part, missing, retry_errors=retry_errors, progress=progress)
    return Report.read([out])


def _write(
    out: Path,
    header: Header,
    part: range,
    missing: Callable[[RunFile], Iterator[list[Row]]],
    *,
    retry_errors: bool,
    progress: bool | None,
) -> None:
    """Write the rows that are missing of this rank's part of the samples, and merge those of all ranks."""
    rank, ranks = share()
    own, both = out, None
    if ranks > 1:
        check_resumable(out, header)
        own, both = Path(f"{out}.rank{rank}"), out if rank == 0 else None
    with (
        RunFile(own, header, part, also_lock=both, retry_errors=retry_errors) as run,
        ProgressBar(run, len(header["seeds"]) * len(part), progress) as bar,
    ):
        for rows in missing(run):
            run.append(rows)
            bar.add(rows)
        if ranks > 1:
            merge_shares(out, [Path(f"{out}.rank{i}") for i in range(min(ranks, header["n"]))])


def _missing_rows(backend: Backend, work: Work, run: RunFile, batch_size: int, num_workers: int) -> Iterator[list[Row]]:
    """Yield the rows that the run does not have yet, in order."""
    if backend == "ray":
        groups = [
            (seed, left[first : first + batch_size])
            for seed, left in run.left.items()
            for first in range(0, len(left), batch_size)
        ]
        yield from ray_rows(work, groups, max(1, num_workers), work.device, work.failed)
        return
    ahead = (
        0 if work.device.type == "cpu" else 1
    )  # groups in flight: the host prepares one while the device is at another
    started: deque[Started] = deque()
    for seed, left in run.left.items():
        items = work.items(seed, left, num_workers)
        while group := list(islice(items, batch_size)):
            started.append(work.start(seed, group))
            if len(started) > ahead:
                yield work.finish(started.popleft())
    yield from map(work.finish, started)


def _identity(
    model: ClipLike, dataset: EvalSet | FeatureStore, cases: list[Case], views: ViewSettings, preset: str | None
) -> dict[str, Any]:
    """Return everything but the names and the seeds that results depend on."""
    shown = {name: value for name, value in views.to_dict().items() if name != "seed"}
    methods = {}
    for case in cases:
        try:
            methods[case.name] = describe(case.entry.predict, case.prompts)
        except ValueError as error:
            raise ValueError(f"evaluate: {case.name!r}: {error}") from error
    if isinstance(dataset, FeatureStore):
        known = {**dataset.entry["identity"], "stored": dataset.entry["dtype"], "data": dataset.data_identity}
        shown = {**dataset.index["views"], "n_views": dataset.n_views}
    else:
        known = {**identify(model), "data": dataset_identity(dataset)}
    found: dict[str, Any] = {"views": shown, **known, "methods": methods}
    if preset is not None:
        found["preset"] = preset
    if rewards := rewards_of(cases):
        found["reward"] = [{**identify(other), "prompts": prompts_digest(own)} for other, own in rewards]
    if votes := [case.name for case in cases if not case.entry.probabilities]:
        found["not_probabilities"] = votes
    return found


def _check(seeds: Sequence[int], batch_size: int, num_workers: int, backend: str) -> None:
    if backend not in get_args(Backend):
        raise ValueError(f"evaluate: backend must be one of {', '.join(get_args(Backend))}, but got {backend!r}")
    if backend == "ray":
        require_ray()
    if not seeds or batch_size < 1:
        raise ValueError(
            f"evaluate: at least one seed and a batch_size of 1 are needed, but got {len(seeds)} seeds and {batch_size}"
        )
    if len(set(seeds)) < len(seeds):
        raise ValueError(f"evaluate: seeds must differ, but got {list(seeds)}")
    if num_workers < 0:
        raise ValueError(f"evaluate: num_workers must be 0 or more, but got {num_workers}")


def _check_classes(prompts: ClassPrompts, cases: list[Case], dataset: EvalSet | FeatureStore) -> None:
    owners = [("the prompts", prompts)]
    for case in cases:
        own = [case.prompts] if isinstance(case.prompts, ClassPrompts) else case.prompts
        owners += [(f"the prompts of {case.name!r}", one) for one in own]
    for owner, one in owners:
        if len(one.names) != len(dataset.classes):
            raise ValueError(
                f"evaluate: {owner} have {len(one.names)} classes and the dataset has {len(dataset.classes)}: class "
                f"{_first_difference(one.names, dataset.classes)}. Build them with class_prompts(model, dataset.classes)"
            )
        if said := permutation(one.names, dataset.classes):
            raise ValueError(
                f"evaluate: {owner} have the classes of the dataset in another order: {said}, as in the dataset. Build them "
                "with class_prompts(model, dataset.classes)"
            )


def _first_difference(names: Sequence[str], wanted: Sequence[str]) -> str:
    pairs = zip_longest(names, wanted)
    at, (a, b) = next((at, pair) for at, pair in enumerate(pairs) if pair[0] != pair[1])
    a, b = ("missing" if name is None else repr(name) for name in (a, b))
    return f"{at} is {a} in the prompts and {b} in the dataset"
