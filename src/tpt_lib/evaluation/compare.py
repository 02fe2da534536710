"""Methods side by side: one table from one encoding of the views."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from statistics import fmean
from typing import Any

import torch
from torch import Tensor

from tpt_lib.evaluation.profiling import Cost, measured
from tpt_lib.evaluation.table import Table
from tpt_lib.features.encode import encode_views
from tpt_lib.methods.baselines import average_predict, ensemble_predict, vote_predict, zero_shot_predict
from tpt_lib.methods.tpt import tpt_predict
from tpt_lib.models.protocol import ClipLike
from tpt_lib.prediction import Prediction
from tpt_lib.prompts.class_prompts import ClassPrompts
from tpt_lib.views.augment import augment_views

__all__ = ["compare"]

Method = Callable[..., Any]

Labels = Sequence[int | str] | Tensor | int | str | None

METHODS: dict[str, Method] = {
    "zero-shot": zero_shot_predict,
    "80 templates": ensemble_predict,
    "averaged": average_predict,
    "majority vote": vote_predict,
    "TPT": tpt_predict,
}


def compare(
    model: ClipLike,
    prompts: ClassPrompts,
    images: Any,
    labels: Labels = None,
    *,
    methods: Mapping[str, Method | tuple[Method, Any]] | None = None,
    **views: Any,
) -> Table:
    """Accuracy, mean entropy, seconds and memory of several methods on the same views of one image or of several.

    Views and features of each image are made once and shared; their cost is stated on its own.

    Args:
        model: the model.
        prompts: what the methods are given.
        images: one image; a list or tensor ``(B, 3, H, W)`` of them; or a dataset of images, or of pairs with their labels.
        labels: the true classes, by index or name; without, there is no accuracy.
        methods: names and methods ``f(model, prompts, features)``, or pairs of a method and the prompts it takes instead,
            as ``(zero_shot_predict, coop)``. A method with the attribute ``takes_views`` is given views instead of
            features. By default zero-shot, 80 templates, the averaged prediction, the majority vote, and TPT.
        **views: goes to ``augment_views`` (``n_views=``, ``recipe=``, ``seed=``, …).

    >>> prompts = tpt_lib.class_prompts(model, ["cat", "dog"])
    >>> methods = {"zero-shot": tpt_lib.zero_shot_predict, "TPT": tpt_lib.tpt_predict}
    >>> table = compare(model, prompts, torch.rand(2, 3, 40, 60), ["cat", "dog"], methods=methods, n_views=4)
    >>> table.column("method"), list(table.shared)
    (['zero-shot', 'TPT'], ['views', 'features'])
    """
    chosen = METHODS if methods is None else methods
    if not chosen:
        raise ValueError("compare: methods is empty; give one or more, as {'TPT': tpt_predict}")
    cases = [({"method": name}, *with_prompts(method, prompts)) for name, method in chosen.items()]
    return table_of(model, prompts, images, labels, cases, views)


def table_of(
    model: ClipLike,
    prompts: ClassPrompts,
    images: Any,
    labels: Labels,
    cases: Sequence[tuple[dict[str, Any], Method, Any]],
    views: Mapping[str, Any],
    swept: str | None = None,
) -> Table:
    """A row for each case: columns of its own, a method and its prompts. One image's views are held at a time."""
    device = prompts.context.device
    truths: list[int | None] = []
    shared: list[list[Cost]] = []
    found: list[list[tuple[Prediction, Cost]]] = [[] for _ in cases]
    for image, truth in _labelled(images, labels, prompts.names):
        truths.append(truth)
        made, cost = measured(partial(augment_views, image, model.image_spec, device=device, **views), device)
        features, encoding = measured(partial(encode_views, model, made), device)
        shared.append([cost, encoding])
        for (_, method, own), results in zip(cases, found, strict=True):
            given = made if takes_views(method) else features
            prediction, cost = measured(partial(method, model, own, given), device)
            results.append((_checked(prediction, method), cost))
    if not truths:
        raise ValueError("compare: there are no images")
    seconds = {name: _seconds([costs[i] for costs in shared]) for i, name in enumerate(("views", "features"))}
    note = (
        f"Over {len(truths)} image(s). Seconds an image, after the first where there are more; first: of the first, with what "
        f"is then kept. Memory in MB, at the peak above what was held. Shared by all rows: views {seconds['views']:.3g} s and "
        f"features {seconds['features']:.3g} s an image, {_shown_memory([c for costs in shared for c in costs])}."
    )
    rows = [{**columns, **_summary(of, truths)} for (columns, _, _), of in zip(cases, found, strict=True)]
    return Table(tuple(rows), note, seconds, swept)


def _summary(results: list[tuple[Prediction, Cost]], truths: list[int | None]) -> dict[str, Any]:
    predictions, costs = [list(column) for column in zip(*results, strict=True)]
    right = [p.index == t for p, t in zip(predictions, truths, strict=True) if t is not None]
    answer = {"label": predictions[0].label} if len(predictions) == 1 else {}
    return {
        **answer,
        "accuracy": fmean(right) if right else None,
        "entropy": fmean(p.entropy for p in predictions),
        "seconds": _seconds(costs),
        "first": costs[0].seconds,
        "memory": max((c.memory for c in costs if c.memory is not None), default=None),
    }


def _seconds(costs: list[Cost]) -> float:
    return fmean(cost.seconds for cost in costs[1:] or costs)


def _shown_memory(costs: list[Cost]) -> str:
    known = [cost.memory for cost in costs if cost.memory is not None]
    return f"{max(known):.0f} MB" if known else "memory unknown"


def with_prompts(method: Any, prompts: ClassPrompts) -> tuple[Method, Any]:
    """A method and the prompts it takes: its own, if it came with any."""
    return method if isinstance(method, tuple) else (method, prompts)


def takes_views(method: Any) -> bool:
    """Whether a method is to be given views; a ``partial`` of one that is, is too."""
    while isinstance(method, partial) and not hasattr(method, "takes_views"):
        method = method.func
    return bool(getattr(method, "takes_views", False))


def _checked(prediction: Any, method: Method) -> Prediction:
    if not isinstance(prediction, Prediction):
        raise TypeError(
            f"compare: a method must return a Prediction for the features of one image, but {method!r} returned a "
            f"{type(prediction).__name__}"
        )
    return prediction


def _labelled(images: Any, labels: Any, names: tuple[str, ...]) -> Iterator[tuple[Any, int | None]]:
    """Each image with the index of its class, if that is known."""
    several = isinstance(images, list | tuple | torch.utils.data.Dataset) or (
        isinstance(images, Tensor) and images.ndim == 4
    )
    images = images if several else [images]
    if labels is not None:
        labels = labels if several else [labels] if isinstance(labels, int | str) else labels
        if len(labels) != len(images):
            raise ValueError(f"compare: there are {len(images)} images and {len(labels)} labels; give one for each")
    for i in range(len(images)):
        image, label = images[i], None if labels is None else labels[i]
        if isinstance(image, tuple):
            image, own = image
            label = own if labels is None else label
        yield image, None if label is None else _index(label, names)


def _index(label: Any, names: tuple[str, ...]) -> int:
    if isinstance(label, str) and label in names:
        return names.index(label)
    if isinstance(label, str) or not 0 <= int(label) < len(names):
        raise ValueError(
            f"compare: a label is the index of a class, 0 to {len(names) - 1}, or one of their names, but got {label!r}"
        )
    return int(label)
