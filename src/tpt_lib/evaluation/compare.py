"""Compare methods: one table from one encoding of the views."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from statistics import fmean
from typing import Any, NamedTuple

from torch import Tensor
from typing_extensions import Unpack

from tpt_lib.evaluation.data.samples import class_index
from tpt_lib.evaluation.from_store import check_store, reward_names, with_views
from tpt_lib.evaluation.profiling import Cost, measured
from tpt_lib.evaluation.table import Table
from tpt_lib.features.encode import encode_views
from tpt_lib.features.store import FeatureStore
from tpt_lib.methods.cases import Case, Methods, as_cases, rewards_of
from tpt_lib.methods.reward import Reward, feature_similarities, judge
from tpt_lib.models.protocol import ClipLike
from tpt_lib.prediction import Prediction
from tpt_lib.prompts.class_prompts import ClassPrompts, class_prompts
from tpt_lib.types import Images, ViewOptions
from tpt_lib.views.augment import augment_views
from tpt_lib.views.reading import are_several
from tpt_lib.views.settings import ViewSettings

__all__ = ["compare"]

Labels = Sequence[int | str] | Tensor | int | str | None
BASELINES_AND_TPT = ("zero_shot", "template_ensemble", "view_average", "view_vote", "tpt")


def compare(
    model: ClipLike,
    images: Images | FeatureStore,
    classes: Sequence[str] | ClassPrompts,
    *,
    labels: Labels = None,
    methods: Methods = BASELINES_AND_TPT,
    preset: str | None = None,
    reward: Reward | None = None,
    **views: Unpack[ViewOptions],
) -> Table:
    """Compare methods on the same views of one image or several: accuracy, mean entropy, seconds and memory.

    The views and features of each image are computed once for all methods; their cost is listed separately.

    Args:
        model: the model.
        images: one image; or several: a list, a tuple, a tensor ``(B, 3, H, W)``, or a dataset of images or of pairs with
            their labels; or a store of their features; then only the text tower runs.
        classes: class names, or the prompts that the methods are given.
        labels: the true classes by index or name (default: those of the dataset's pairs; without labels accuracy is None).
        methods: a name from ``list_methods()``, a function, or a list of them; or a dict from the name in the table to a
            method, or to a pair of a method and its own prompts, such as ``{"CoOp": ("zero_shot", coop)}``. By default the
            baselines and TPT.
        preset: a dataset whose settings the methods take from their authors, such as ``"imagenet-a"`` (default None).
        reward: a pair (model, prompts) of a second CLIP, or a list of pairs, for methods that need a reward.
        **views: the keywords of ``augment_views``: ``n_views=64``, ``recipe="crop"``, ``seed=0``, ….

    Returns:
        A row per method: ``method``, ``accuracy``, ``entropy``, ``seconds``, ``first`` and ``memory``, and ``label`` for one
        image.

    >>> images = torch.rand(2, 3, 40, 60)
    >>> table = compare(model, images, ["cat", "dog"], labels=[0, 1], methods=["zero_shot", "tpt"], n_views=4)
    >>> table.column("method"), list(table.shared)
    (['zero-shot', 'TPT'], ['views', 'features'])
    """
    prompts = classes if isinstance(classes, ClassPrompts) else class_prompts(model, classes)
    source, settings = with_views("compare", model, images, **views)
    cases = as_cases("compare", methods, prompts, preset=preset, reward=reward)
    return table_of(model, source, prompts, labels, [({"method": case.name}, case) for case in cases], settings)


def table_of(
    model: ClipLike,
    images: Images | FeatureStore,
    prompts: ClassPrompts,
    labels: Labels,
    cases: Sequence[tuple[dict[str, Any], Case]],
    views: ViewSettings,
    swept: str | None = None,
) -> Table:
    """Return a row per case, with its own columns. Only the views of one image are in memory at a time."""
    device, only = prompts.context.device, [case for _, case in cases]
    truths: list[int | None] = []
    shared: list[dict[str, Cost]] = []
    found: list[list[tuple[Prediction, Cost]]] = [[] for _ in cases]
    if isinstance(images, FeatureStore):
        inputs = _stored(images, labels, prompts, only)
    else:
        inputs = _encoded(model, images, labels, prompts, only, views)
    for one in inputs:
        truths.append(one.truth)
        shared.append(one.costs)
        for case, results in zip(only, found, strict=True):
            batch, cost = measured(
                partial(case.predict, model, [one.features], [one.views], [one.similarities]), device
            )
            results.append((batch[0], cost))
    if not truths:
        raise ValueError("compare: there are no images")
    seconds = {name: _seconds([costs[name] for costs in shared]) for name in shared[0]}
    note = (
        f"Over {len(truths)} image(s). seconds: per image, without the first if there are several. first: seconds of the first "
        f"image, including what is then cached. memory: peak increase in MB. Shared by all rows, per image: "
        f"{', '.join(f'{name} {value:.3g} s' for name, value in seconds.items())}, "
        f"{_memory([c for costs in shared for c in costs.values()])}."
    )
    rows = [{**columns, **_summary(results, truths)} for (columns, _), results in zip(cases, found, strict=True)]
    return Table(tuple(rows), note, seconds, swept)


class _Input(NamedTuple):
    """The input of the methods for one image, its class if known, and the cost of computing it."""

    truth: int | None
    views: Tensor
    features: Tensor
    similarities: list[Tensor]
    costs: dict[str, Cost]


def _encoded(
    model: ClipLike, images: Images, labels: Labels, prompts: ClassPrompts, cases: Sequence[Case], views: ViewSettings
) -> Iterator[_Input]:
    device, rewards = prompts.context.device, rewards_of(cases)
    for image, truth in _labeled(images, labels, prompts.names):
        made, making = measured(partial(augment_views, image, model.image_spec, device=device, **vars(views)), device)
        features, encoding = measured(partial(encode_views, model, made), device)
        judged, judging = measured(partial(judge, rewards, image, made, model.image_spec, views), device)
        costs = {"views": making, "features": encoding, **({"reward": judging} if rewards else {})}
        yield _Input(truth, made, features, judged, costs)


def _stored(store: FeatureStore, labels: Labels, prompts: ClassPrompts, cases: Sequence[Case]) -> Iterator[_Input]:
    device, rewards = prompts.context.device, rewards_of(cases)
    others = [store.of_model(name) for name in reward_names("compare", store, cases)]
    check_store("compare", store, cases, [store.view_seed], [other.model for other in others])
    known = store.labels.tolist() if labels is None else labels
    for i, (_, truth) in enumerate(_labeled(range(len(store)), known, prompts.names)):
        own, reading = measured(partial(store.features, [i]), device)
        judged = feature_similarities(rewards, [other.features([i])[0] for other in others], [device] * len(others))
        yield _Input(truth, own[0], own[0].to(device), judged, {"reading": reading})


def _summary(results: list[tuple[Prediction, Cost]], truths: list[int | None]) -> dict[str, Any]:
    predictions, costs = [p for p, _ in results], [c for _, c in results]
    right = [p.index == t for p, t in zip(predictions, truths, strict=True) if t is not None]
    answer = {"label": predictions[0].label} if len(predictions) == 1 else {}
    return {
        **answer,
        "accuracy": fmean(right) if right else None,
        "entropy": fmean(float(p.entropy) for p in predictions),
        "seconds": _seconds(costs),
        "first": costs[0].seconds,
        "memory": max((c.memory for c in costs if c.memory is not None), default=None),
    }


def _seconds(costs: list[Cost]) -> float:
    return fmean(cost.seconds for cost in costs[1:] or costs)


def _memory(costs: list[Cost]) -> str:
    known = [cost.memory for cost in costs if cost.memory is not None]
    return f"{max(known):.0f} MB" if known else "memory unknown"


def _labeled(images: Any, labels: Labels, names: tuple[str, ...]) -> Iterator[tuple[Any, int | None]]:
    """Return pairs of an image and its class index, None if not known. ``labels`` are checked before any work."""
    several: Any = images if isinstance(images, range) or are_several(images) else [images]
    apart: Any = [labels] if isinstance(labels, int | str) else labels if labels is None else list(labels)
    if apart is not None and len(apart) != len(several):
        raise ValueError(
            f"compare: there are {len(several)} images and {len(apart)} labels; pass one label for each image"
        )
    known = None if apart is None else [_index(label, names) for label in apart]

    def pairs() -> Iterator[tuple[Any, int | None]]:
        for i in range(len(several)):
            image, own = several[i] if isinstance(several[i], tuple) else (several[i], None)
            yield image, known[i] if known is not None else None if own is None else _index(own, names)

    return pairs()


def _index(label: Any, names: tuple[str, ...]) -> int:
    if isinstance(label, str) and label in names:
        return names.index(label)
    try:
        return class_index(label, len(names))
    except ValueError:
        raise ValueError(
            f"compare: a label is the index of a class, 0 to {len(names) - 1}, or one of their names, but got {label!r}"
        ) from None
