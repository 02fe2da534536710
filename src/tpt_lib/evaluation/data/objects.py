"""Load datasets that are Python objects: of Hugging Face or torch, or streams of samples."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from torch.utils.data import DataLoader, IterableDataset

from tpt_lib.evaluation.data.eval_set import EvalSet
from tpt_lib.evaluation.data.hugging_face import hugging_face_kind, read_hugging_face
from tpt_lib.evaluation.data.registered import checked_names, warn_if_permuted
from tpt_lib.evaluation.data.stream import read_stream

__all__ = ["from_object"]


def from_object(
    source: Any, split: str, classes: Sequence[str] | None, image: str | None, label: str | None
) -> EvalSet:
    """Return the dataset of an object that is not a path; ``load_dataset`` describes the arguments."""
    if hugging_face_kind(source):
        data = read_hugging_face(source, split, image, label, classes)
        if data.own is not None and classes is not None:
            checked_names(data.name, classes, data.own)
        return EvalSet(data.name, data.samples, data.classes, split=data.split)
    kind = type(source).__name__
    if image is not None or label is not None:
        raise ValueError(f"load_dataset: image and label name columns, which a {kind} does not have; leave them out")
    if isinstance(source, DataLoader):
        raise ValueError("load_dataset: a DataLoader yields batches that were prepared already; pass its dataset")
    indexed = hasattr(source, "__getitem__") and hasattr(source, "__len__") and not isinstance(source, IterableDataset)
    if indexed or not (isinstance(source, Iterable) or callable(source)):
        return _from_torch(source, classes, split)
    stream, names = read_stream(source, getattr(source, "classes", None) if classes is None else classes)
    return EvalSet(getattr(source, "__name__", kind), stream, names, split=split)


def _from_torch(dataset: Any, classes: Sequence[str] | None, split: str) -> EvalSet:
    own = getattr(dataset, "classes", None)
    names = own if classes is None else classes
    if names is None:
        raise ValueError(
            f"load_dataset: a {type(dataset).__name__} does not name its classes: pass classes=[…], in the "
            "order of the labels"
        )
    if own is not None:
        warn_if_permuted(type(dataset).__name__, names, own)
    return EvalSet(type(dataset).__name__, dataset, names, split=split)
