"""Evaluate methods on a dataset: views in worker processes, one encoding for all methods, one row per sample on disk."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from typing_extensions import Unpack

from tpt_lib.evaluation.data.eval_set import EvalSet
from tpt_lib.evaluation.from_store import check_no_pixels, check_store, first_views, reward_names, store_of_model
from tpt_lib.evaluation.metrics import require_torchmetrics
from tpt_lib.evaluation.report import Report
from tpt_lib.evaluation.run.checks import Backend, check_batch_size, check_classes, check_seeds, check_workers
from tpt_lib.evaluation.run.distributed import share
from tpt_lib.evaluation.run.settings import run_settings
from tpt_lib.evaluation.run.stream_plan import Streams, plan_stream
from tpt_lib.evaluation.run.work import Work, needed_views
from tpt_lib.evaluation.run.write_run import write_run
from tpt_lib.evaluation.run_file import run_header
from tpt_lib.evaluation.run_lines import check_is_file
from tpt_lib.features.store import FeatureStore
from tpt_lib.methods.cases import Case, Methods, as_cases
from tpt_lib.methods.reward import Reward
from tpt_lib.models.identity import check_known
from tpt_lib.models.protocol import ClipLike
from tpt_lib.prompts.class_prompts import ClassPrompts, class_prompts
from tpt_lib.types import PathLike, UnseededViewOptions
from tpt_lib.views.settings import ViewSettings

__all__ = ["evaluate"]


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

    A call with the ``out`` of a run that was stopped or killed resumes it; a finished run is only read. ``num_workers`` and
    ``backend`` affect speed, never results. Online methods, such as ``"tda"``, see the images as a stream in an order that is
    part of the run; their state is saved next to ``out`` until the run is finished.

    Args:
        model: the model.
        dataset: what ``load_dataset`` returned, or ``EvalSet("mine", samples, classes)``; or the store that ``encode_dataset``
            made of it, for which only the model's text tower runs.
        methods: a name from ``list_methods()`` or ``list_methods(online=True)``, a function, or a list of them; or a dict from
            the name in the report to a method, or to a pair of a method and its own prompts, such as
            ``{"CoOp": ("zero_shot", coop)}``.
        out: the run file, one JSON object per line: the settings, then a row per seed and sample. Each row is flushed.
        seeds: seeds of the views and of the order (default ``(0,)``); the report has means and deviations over them.
        prompts: prompts of the methods (default: the dataset's classes in its template).
        preset: a dataset whose settings the methods take from their authors, such as ``"imagenet-a"``, or ``"dataset"`` for
            the one that is evaluated (default None: the methods' defaults). The run records the settings.
        reward: a pair (model, prompts) of a second CLIP, or a list of pairs, for methods that need a reward.
        batch_size: number of samples given to a method together (default 1). Affects speed, never results, except for methods
            that learn from batches, such as ``"tent"``: with one of these it is part of the run.
        num_workers: number of processes that read images, and make their views if the model is on a CPU (default 2, or 0 if
            the model is on a CPU, where they would take its cores). With Ray, the number of actors, which do all of the work.
        backend: ``"local"`` (default), or ``"ray"`` for a Ray cluster. Under ``torchrun`` each rank takes its share of the
            samples, and the shares are merged.
        order: order of the stream, for online methods (default None: ``"shuffle"``, which differs for each seed): also
            ``"dataset"``, ``"by-class"``, ``"dirichlet"`` (classes in bursts; ``"dirichlet:0.5"`` sets the concentration,
            default 0.1) or ``"domains"`` (one after another).
        streams: ``"per-rank"`` gives each rank of ``torchrun``, or each of ``num_workers`` workers of Ray, a stream of its own
            over its share, for online methods (default None: they are refused). Results then depend on their number.
        strict: whether to stop at an image that cannot be used (default False: record its error as a row).
        retry_errors: whether a resumed run tries every sample with an error again (default False: all but images that were
            refused with ``ImageError``; a missing file or a lack of memory may be temporary).
        progress: whether to show a bar with the accuracy so far (default: only on a terminal).
        **views: the keywords of ``augment_views`` except ``seed``; the recipe is the dataset's by default. For a store,
            ``n_views`` takes its first views.

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
    data, settings = _with_views(model, dataset, views)
    prompts = class_prompts(model, data.classes, template=data.template) if prompts is None else prompts
    preset = data.name if preset == "dataset" else preset
    cases = as_cases("evaluate", methods, prompts, preset=preset, reward=reward, online=True)
    num_workers = check_workers("evaluate", num_workers, backend, prompts.context.device)
    check_seeds("evaluate", seeds)
    check_batch_size("evaluate", batch_size)
    check_classes(prompts, cases, data.classes)
    if isinstance(data, FeatureStore):
        check_no_pixels("evaluate", cases)
    settings = needed_views(cases, settings)
    rank, ranks = share()
    asked: Any = {"order": order, "streams": streams, "backend": backend, "retry_errors": retry_errors}
    shares = max(1, num_workers) if backend == "ray" else ranks
    stream = plan_stream(model, data, cases, seeds, shares, batch_size=batch_size, **asked)
    cases = cases if stream is None else stream.cases
    work = _work(model, data, cases, seeds, settings, strict)
    identity = run_settings(model, data, cases, settings, preset, stream)
    check_known("evaluate", identity, Path(out), Path(f"{out}.rank{rank}"))
    names = [case.name for case in cases]
    header = run_header(data.name, data.split, data.classes, names, seeds, len(work.samples), identity)
    how: Any = {"backend": backend, "batch_size": batch_size, "num_workers": num_workers}
    write_run(Path(out), header, work, stream, retry_errors=retry_errors, progress=progress, **how)
    return Report.read([out])


def _with_views(
    model: ClipLike, dataset: EvalSet | FeatureStore, views: UnseededViewOptions
) -> tuple[EvalSet | FeatureStore, ViewSettings]:
    """Return the dataset and the settings of its views; or the part of a store that has these views of this model."""
    if isinstance(dataset, FeatureStore):
        store = first_views("evaluate", store_of_model("evaluate", dataset, model), **views)
        return store, ViewSettings(n_views=store.n_views)
    options: Any = {"recipe": dataset.recipe, **views}
    return dataset, ViewSettings.of("evaluate", **options)


def _work(
    model: ClipLike,
    data: EvalSet | FeatureStore,
    cases: list[Case],
    seeds: Sequence[int],
    settings: ViewSettings,
    strict: bool,
) -> Work:
    """Return what turns samples into rows, after checking that a store has all it needs."""
    if not isinstance(data, FeatureStore):
        return Work(model, cases, data.samples, settings, strict, data.root)
    rewards = reward_names("evaluate", data, cases)
    check_store("evaluate", data, cases, seeds, rewards)
    return Work(model, cases, data, settings, strict, data.root, rewards)
