"""Read datasets of the Hugging Face ``datasets`` library, with a column of images and a column of labels."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from torch.utils.data import Dataset

from tpt_lib.evaluation.data.columns import choose_column, class_labels
from tpt_lib.evaluation.data.stream import read_stream
from tpt_lib.views.reading import read_encoded

__all__ = ["HuggingFaceImages", "hugging_face_kind", "read_hugging_face"]

MODULES = ("datasets.arrow_dataset", "datasets.iterable_dataset", "datasets.dataset_dict")


class Found(NamedTuple):
    """What an evaluation needs of a Hugging Face dataset; ``own`` are its own class names, if it has them."""

    name: str
    samples: Dataset[Any]
    classes: tuple[str, ...]
    own: tuple[str, ...] | None
    split: str


class HuggingFaceImages(Dataset[tuple[Any, int]]):
    """A torch dataset of (image, label) from two columns. Images are read on access."""

    def __init__(self, rows: Any, image: str, targets: Sequence[int]) -> None:
        self.rows, self.image, self.targets = rows, image, list(targets)

    def __len__(self) -> int:
        return len(self.targets)

    def __getitem__(self, index: int) -> tuple[Any, int]:
        value = _stored(self.rows[index][self.image])
        image = read_encoded(value, f"the image of row {index}") if isinstance(value, bytes) else value
        return image, self.targets[index]


class HuggingFaceRows:
    """The (image, label) pairs of a streaming dataset. Can be iterated repeatedly."""

    def __init__(self, rows: Any, image: str, label: str) -> None:
        self.rows, self.image, self.label = rows, image, label

    def __iter__(self) -> Iterator[tuple[Any, Any]]:
        return ((_stored(row[self.image]), row[self.label]) for row in self.rows)


def hugging_face_kind(source: Any) -> str | None:
    """Return the name of an object's class in the ``datasets`` library, or None. Nothing is imported."""
    return next((kind.__name__ for kind in type(source).__mro__ if kind.__module__ in MODULES), None)


def read_hugging_face(
    source: Any, split: str, image: str | None, label: str | None, classes: Sequence[str] | None
) -> Found:
    """Return the samples and class names of a dataset of the Hugging Face library.

    Formats and transforms that are set on it are ignored: images are read as they are stored.

    Args:
        source: a ``Dataset``, an ``IterableDataset``, or a dict of them by split.
        split: which split of a dict, and its name.
        image: column of the images (default: the one of type ``Image``, or by its name).
        label: column of the labels (default: the one of type ``ClassLabel``, or by its name).
        classes: class names in the order of the labels (default: those of ``ClassLabel``, or the names that occur).

    Raises:
        ValueError: if there is no such split or column, the dataset is empty, or a label is missing or out of range.
    """
    kind = hugging_face_kind(source)
    if kind in ("DatasetDict", "IterableDatasetDict"):
        if split not in source:
            raise ValueError(f"load_dataset: split must be one of {', '.join(source)}, but got {split!r}")
        return read_hugging_face(source[split], split, image, label, classes)
    import datasets

    where = f"load_dataset: the {kind}"
    features: dict[str, Any] = source.features or dict.fromkeys(source.column_names or ())
    typed = {
        wanted: [name for name, feature in features.items() if isinstance(feature, wanted)]
        for wanted in (datasets.Image, datasets.ClassLabel)
    }
    image = choose_column(where, [*features], "image", image, typed[datasets.Image])
    label = choose_column(where, [*features], "label", label, typed[datasets.ClassLabel])
    own = tuple(features[label].names) if label in typed[datasets.ClassLabel] else None
    rows = source.with_format(None)
    if image in typed[datasets.Image]:
        rows = rows.cast_column(image, datasets.Image(decode=False))
    names = own if classes is None else classes
    samples: Dataset[Any]
    if kind == "IterableDataset":
        samples, found = read_stream(HuggingFaceRows(rows, image, label), names)
    else:
        if not len(source):
            raise ValueError(f"{where} has no rows")
        said = rows.select_columns([label])[:][label]
        targets, found = class_labels(where, said, names, "row {}".format)
        samples = HuggingFaceImages(rows, image, targets)
    named = str(source.split) if source.split is not None and split == "test" else split
    return Found(source.info.dataset_name or kind or "", samples, found, own, named)


def _stored(value: Any) -> Any:
    """Return the bytes or the path of an image that was not decoded, and anything else as it is."""
    if isinstance(value, dict) and {"bytes", "path"} <= set(value):
        return value["path"] if value["bytes"] is None else value["bytes"]
    return value
