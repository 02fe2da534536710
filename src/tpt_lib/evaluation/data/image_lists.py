"""Read sets with a text file per split, in which each line has the path and the label of an image."""

from __future__ import annotations

import re
from pathlib import Path

from tpt_lib.evaluation.data.folders import Listing, candidate_folders, path_below
from tpt_lib.evaluation.data.registry import Entry
from tpt_lib.text_files import read_text

__all__ = ["read_list"]


def read_list(entry: Entry, root: Path, split: str) -> Listing:
    """Return the listing of a split.

    Class names are those of the registry, or else the folders of the images in the lists of all splits found, since a class
    may be absent from one of them.

    Args:
        entry: the dataset; its ``split_file`` is the path of a list, with ``{split}`` for the split.
        root: its folder, or the folder that holds it.
        split: name of the split.

    Raises:
        FileNotFoundError: if the list is missing.
        ValueError: if a line is not a path and a label, or labels and names do not match.
    """
    found = [
        (file, place)
        for place in candidate_folders(entry, root)
        for images in entry.images
        if (file := place / images / entry.split_file.format(split=split)).is_file()
    ]
    if not found:
        name = entry.split_file.format(split=split)
        raise FileNotFoundError(f"{entry.name}: no {name} in {root}. Expected below the root: {entry.layout}")
    file, place = found[0]
    lines = _read(entry, file)
    folder = file.parent if "/" in entry.split_file else place
    names = entry.names or _folder_names(entry, file, split)
    if odd := [i for i, (_, label) in enumerate(lines) if label >= len(names)]:
        raise ValueError(
            f"{entry.name}: line {odd[0] + 1} of {file} has the label {lines[odd[0]][1]}, but there are {len(names)} classes. "
            "Download the list again"
        )
    return Listing([folder / path for path, _ in lines], [label for _, label in lines], names)


def _read(entry: Entry, file: Path) -> list[tuple[str, int]]:
    lines = []
    for number, line in enumerate(read_text(entry.name, file).splitlines(), 1):
        said = re.fullmatch(r"(\S.*?)\s+(\d+)\s*", line)
        if said is None:
            raise ValueError(
                f"{entry.name}: line {number} of {file} must be the path of an image and a label, but is {line[:80]!r}. "
                "Download the list again"
            )
        lines.append((path_below(entry.name, file, said[1]), int(said[2])))
    if not lines:
        raise ValueError(f"{entry.name}: {file} is empty. Download the list again")
    return lines


def _folder_names(entry: Entry, file: Path, split: str) -> tuple[str, ...]:
    """Return the names of the classes: the folders of the images in all lists next to a list."""
    names: dict[int, str] = {}
    others = [file.parent / entry.split_file.format(split=other) for other in entry.counts if other != split]
    for listed in (file, *(other for other in others if other.is_file())):
        for path, label in _read(entry, listed):
            name = Path(path).parent.name
            if names.setdefault(label, name) != name:
                raise ValueError(
                    f"{entry.name}: labels and names do not match: label {label} is {names[label]!r} and, for {path} in "
                    f"{listed}, {name!r}. Download the lists again"
                )
    if gap := [label for label in range(max(names) + 1) if label not in names]:
        raise ValueError(
            f"{entry.name}: no list next to {file} names class {gap[0]}. Add the list of another domain that does"
        )
    return tuple(names[label] for label in range(len(names)))
