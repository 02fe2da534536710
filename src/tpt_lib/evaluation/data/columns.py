"""Find the columns of images and labels, and turn labels into class indices."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal

from tpt_lib.evaluation.data.folders import quoted
from tpt_lib.evaluation.data.samples import as_label

__all__ = ["choose_column", "class_labels"]

NAMES = {
    "image": ("image", "img", "path", "file", "filename", "file_name", "filepath", "image_path", "img_path"),
    "label": ("label", "labels", "class", "target", "category", "class_name", "label_name", "cls", "y"),
}


def choose_column(
    where: str, columns: Sequence[str], what: Literal["image", "label"], named: str | None, likely: Iterable[str] = ()
) -> str:
    """Return the column of the images or of the labels.

    Args:
        where: the source, for errors.
        columns: names of all columns.
        what: which column to find; also the keyword of ``load_dataset`` that names it.
        named: the name that the caller gave, or None to guess.
        likely: columns whose type fits, which are considered before names.

    Raises:
        ValueError: if there is no such column, or more than one; the message lists the columns.

    >>> choose_column("photos.csv", ["id", "Path", "label"], "image", None)
    'Path'
    """
    listed = f"its columns are {quoted(columns, 20)}"
    if named is not None:
        if named not in columns:
            raise ValueError(f"{where}: there is no column {named!r}, which was passed as {what}; {listed}")
        return named
    found = list(likely) or [name for name in columns if name.strip().lower() in NAMES[what]]
    if len(found) != 1:
        problem = f"{len(found)} columns may be the {what}, {quoted(found)}" if found else f"no column is the {what}"
        raise ValueError(f"{where}: {problem}; {listed}. Pass {what}='…', the name of the column")
    return found[0]


def class_labels(
    where: str, values: Sequence[Any], classes: Sequence[str] | None, place: Callable[[int], str]
) -> tuple[list[int], tuple[str, ...]]:
    """Return labels as indices of classes, and the class names.

    Convention:
        Labels are names, or integers, which may be written as text. Without ``classes``, the classes are the names that
        occur, sorted. A text that is both a number and one of ``classes`` is that class.

    Args:
        where: the source, for errors.
        values: the label of each sample.
        classes: class names in the order of the labels, or None.
        place: function from the index of a sample to its place in the source, such as its line, for errors.

    Raises:
        ValueError: if a label is missing or not one of the classes, or integers come without ``classes``.

    >>> class_labels("photos.csv", ["dog", "cat", "dog"], None, "line {}".format)
    ([1, 0, 1], ('cat', 'dog'))
    """
    if isinstance(classes, str):
        raise ValueError(f"load_dataset: classes must be a list of names, but got {classes!r}")
    values = [value.strip() if isinstance(value, str) else value for value in values]
    _refuse(where, "has no label", [i for i, value in enumerate(values) if value is None or value == ""], place)
    known = tuple(classes or ())
    if all(isinstance(value, str) for value in values):
        numbers = [bool(re.fullmatch(r"[+-]?\d+", value)) for value in values]
        if not all(numbers) or set(values) <= set(known):
            if any(numbers) and not known:
                odd = numbers.index(True)
                raise ValueError(f"{where}: labels are names, but {place(odd)} has the number {values[odd]!r}")
            return _named(where, values, known, place)
        values = [int(value) for value in values]
    labels = [as_label(value, f"{where}: the label of {place(i)}") for i, value in enumerate(values)]
    if not known:
        raise ValueError(
            f"{where}: labels are numbers, {min(labels)}..{max(labels)}, which do not name the classes: pass classes=[…], the "
            "names in the order of the numbers"
        )
    says = f"has a label outside 0..{len(known) - 1}, the {len(known)} classes {quoted(known)}"
    _refuse(where, says, [i for i, label in enumerate(labels) if not 0 <= label < len(known)], place, labels)
    return labels, known


def _named(
    where: str, values: list[str], known: tuple[str, ...], place: Callable[[int], str]
) -> tuple[list[int], tuple[str, ...]]:
    names = known or tuple(sorted(set(values)))
    index = {name: i for i, name in enumerate(names)}
    if len(index) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"{where}: labels are names, but classes has {twice!r} twice; name each class once")
    says = f"has a label that is none of the {len(names)} classes {quoted(names)}"
    _refuse(where, says, [i for i, value in enumerate(values) if value not in index], place, values)
    return [index[value] for value in values], names


def _refuse(
    where: str, says: str, bad: list[int], place: Callable[[int], str], values: Sequence[Any] | None = None
) -> None:
    if bad:
        more = f" ({len(bad)} such samples)" if len(bad) > 1 else ""
        shown = "" if values is None else f": {values[bad[0]]!r:.80}"
        raise ValueError(f"{where}: {place(bad[0])} {says}{shown}{more}")
