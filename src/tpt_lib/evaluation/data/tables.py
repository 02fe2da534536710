"""Read tables of paths and labels from CSV, TSV and Parquet files; check every row before an image is read."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from tpt_lib.evaluation.data.columns import choose_column, class_labels
from tpt_lib.evaluation.data.folders import Listing, quoted
from tpt_lib.evaluation.data.split_files import missing_files
from tpt_lib.text_files import read_text

__all__ = ["TABLES", "read_table"]

DELIMITERS = {".csv": ",", ".tsv": "\t"}
TABLES = (*DELIMITERS, ".parquet")


class Columns(NamedTuple):
    """The two columns of a table, and the place of each row for errors: its line in a text, its row in a Parquet file."""

    images: list[Any]
    labels: list[Any]
    places: Sequence[str]


def read_table(
    file: Path,
    folder: Path,
    *,
    image: str | None = None,
    label: str | None = None,
    classes: Sequence[str] | None = None,
    subset: bool = False,
) -> Listing:
    """Return the listing of a file with a column of paths and a column of labels.

    Args:
        file: a CSV or TSV file with a header line, or a Parquet file.
        folder: folder that relative paths start from.
        image: name of the column of paths (default: guessed).
        label: name of the column of labels, names or integers (default: guessed).
        classes: class names in the order of the labels (default: the names that occur, sorted).
        subset: whether to leave out images that are missing (default False).

    Raises:
        ValueError: if a row cannot be used; the message has its line.
        FileNotFoundError: if images are missing.
    """
    where = f"load_dataset: {str(file)!r}"
    read = _from_parquet if file.suffix.lower() == ".parquet" else _from_text
    found = read(where, file, image, label)
    if not found.images:
        raise ValueError(f"{where} has no rows")
    for value, place in zip(found.images, found.places, strict=True):
        if not isinstance(value, str) or not value.strip():
            raise ValueError(f"{where}: {place} must have a path, but has {value!r:.80}")
    labels, names = class_labels(where, found.labels, classes, found.places.__getitem__)
    paths = [folder / value.strip() for value in found.images]
    _check_unique(where, paths, labels, found.places)
    missing = missing_files(paths)
    if missing and (not subset or len(missing) == len(paths)):
        first = next(i for i, path in enumerate(paths) if path in missing)
        raise FileNotFoundError(
            f"{where}: {len(missing)} of {len(paths)} images are missing, first {str(paths[first])!r}, {found.places[first]}. "
            "Relative paths start from the folder of the file, or from root"
            + ("" if subset else "; pass subset=True to leave missing images out")
        )
    kept = [(path, label) for path, label in zip(paths, labels, strict=True) if path not in missing]
    return Listing([path for path, _ in kept], [label for _, label in kept], names)


def _from_text(where: str, file: Path, image: str | None, label: str | None) -> Columns:
    text = io.StringIO(read_text("load_dataset", file), newline="")
    reader = csv.reader(text, delimiter=DELIMITERS[file.suffix.lower()], strict=True)
    rows: list[list[str]] = []
    places: list[str] = []
    try:
        for row in reader:
            if any(value.strip() for value in row):
                rows.append(row)
                places.append(f"line {reader.line_num}")
    except csv.Error as error:
        raise ValueError(f"{where}: line {reader.line_num} is broken: {error}") from error
    if not rows:
        raise ValueError(f"{where} is empty; expected a header line with the names of the columns")
    header, *rows = rows
    if len(set(header)) < len(header):
        raise ValueError(f"{where}: columns must differ, but the header is {quoted(header, 20)}")
    at = [header.index(_column(where, header, what, named)) for what, named in (("image", image), ("label", label))]
    for row, place in zip(rows, places[1:], strict=True):
        if len(row) != len(header):
            raise ValueError(f"{where}: {place} has {len(row)} values, but the header has {len(header)} columns")
    return Columns([row[at[0]] for row in rows], [row[at[1]] for row in rows], places[1:])


def _column(where: str, header: list[str], what: Any, named: str | None) -> str:
    try:
        return choose_column(where, header, what, named)
    except ValueError as error:
        raise ValueError(f"{error}. The first line must have the names of the columns") from error


def _from_parquet(where: str, file: Path, image: str | None, label: str | None) -> Columns:
    try:
        import pyarrow.parquet
    except ImportError as error:
        raise ImportError(f'{where}: a Parquet file needs pyarrow: pip install "tpt_lib[datasets]"') from error
    try:
        parquet = pyarrow.parquet.ParquetFile(file)
    except pyarrow.ArrowInvalid as error:
        raise ValueError(f"{where} is not a Parquet file, or was cut short: {error}") from error
    with parquet:
        schema = parquet.schema_arrow
        path = choose_column(where, schema.names, "image", image)
        if not any(kind(schema.field(path).type) for kind in (pyarrow.types.is_string, pyarrow.types.is_large_string)):
            raise ValueError(
                f"{where}: the column {path!r} must have the paths of images, but is of type {schema.field(path).type}. If it "
                "has the images, open the file with datasets.load_dataset('parquet', data_files=…) and pass the result"
            )
        name = choose_column(where, schema.names, "label", label)
        columns = parquet.read([path, name])
    rows = range(columns.num_rows)
    return Columns(columns[path].to_pylist(), columns[name].to_pylist(), [f"row {i}" for i in rows])


def _check_unique(where: str, paths: list[Path], labels: list[int], places: Sequence[str]) -> None:
    first: dict[Path, int] = {}
    for i, path in enumerate(paths):
        if (other := first.setdefault(path, i)) != i:
            what = "the same label" if labels[i] == labels[other] else "another label"
            raise ValueError(
                f"{where}: {places[i]} has the image of {places[other]}, {str(path)!r}, with {what}; remove one of them"
            )
