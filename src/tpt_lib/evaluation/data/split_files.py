"""Read the ten fine-grained sets: CoOp's split files, or the original splits as torchvision reads them."""

from __future__ import annotations

import importlib.util
import inspect
import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tpt_lib.evaluation.data.folders import Listing, candidate_folders, path_below, quoted
from tpt_lib.evaluation.data.registry import Entry
from tpt_lib.text_files import read_json, read_text

__all__ = ["first_with", "missing_files", "read_splits"]


def read_splits(entry: Entry, root: Path, split: str) -> tuple[Listing, str]:
    """Return the listing of a split and the split's name, ``original-test`` if it is not the paper's split."""
    if entry.name == "aircraft":
        return _aircraft(entry, root, split), split
    inside = candidate_folders(entry, root)
    file = next((f for place in (*inside, root / "data_splits") if (f := place / entry.split_file).is_file()), None)
    if file is not None and split in entry.counts:
        return _from_split_file(entry, file, inside, split), split
    if split not in entry.original:
        raise FileNotFoundError(_no_split_file(entry, root, split))
    found = _from_torchvision(entry, root, split)
    if entry.original[split] == entry.counts.get(split):
        return found, split
    if split in entry.counts:
        warnings.warn(
            f"{entry.name}: {entry.split_file} is not in {root}, so this is the original {split} split of "
            f"{entry.original[split]} images, not the paper's of {entry.counts[split]}",
            stacklevel=4,
        )
    return found, f"original-{split}"


def first_with(name: str, folders: Iterable[Path], wanted: str) -> Path:
    """Return the first of the folders that has the wanted file."""
    folders = list(dict.fromkeys(folders))
    folder = next((folder for folder in folders if (folder / wanted).is_file()), None)
    if folder is None:
        raise FileNotFoundError(
            f"{name}: {wanted!r}, the first image of the split file, is in none of {quoted(folders, 4)}. Put the images "
            "into one of these"
        )
    return folder


def missing_files(paths: Iterable[Path]) -> set[Path]:
    """Return the paths that do not exist. Lists each folder once, which is fast on network drives too."""
    listed: dict[Path, set[str]] = {}
    missing = set()
    for path in paths:
        if path.parent not in listed:
            listed[path.parent] = {one.name for one in path.parent.iterdir()} if path.parent.is_dir() else set()
        if path.name not in listed[path.parent]:
            missing.add(path)
    return missing


def _from_split_file(entry: Entry, file: Path, inside: list[Path], split: str) -> Listing:
    splits = read_json(entry.name, file)
    if (
        not isinstance(splits, dict)
        or not all(isinstance(items, list) for items in splits.values())
        or not splits.get(split)
    ):
        held = quoted(splits) if isinstance(splits, dict) else type(splits).__name__
        raise ValueError(f"{entry.name}: {file} has no samples of {split!r}; it holds {held}. Download it again")
    items = [_item(entry, file, part, item) for part, items in splits.items() for item in enumerate(items)]
    classes = _names(entry, file, items)
    relative = [path_below(entry.name, file, path) for path, _, _ in splits[split]]
    folder = first_with(entry.name, (place / images for place in inside for images in entry.images), relative[0])
    return Listing([folder / path for path in relative], [label for _, label, _ in splits[split]], classes)


def _item(entry: Entry, file: Path, split: str, numbered: tuple[int, Any]) -> list[Any]:
    """Return an item of a split file if it is ``[path, label, name]``."""
    number, item = numbered
    if not isinstance(item, list) or list(map(type, item)) != [str, int, str]:
        raise ValueError(
            f"{entry.name}: item {number} of {split!r} in {file} must be [path, label, name], but is {repr(item)[:80]}. "
            "Download the file again"
        )
    return item


def _names(entry: Entry, file: Path, items: list[list[Any]]) -> tuple[str, ...]:
    """Return the names by label. A label with two names, or a gap, means that labels and names do not match."""
    names: dict[int, str] = {}
    for path, label, name in items:
        if names.setdefault(label, name) != name:
            raise ValueError(
                f"{entry.name}: labels and names do not match: in {file} label {label} is {names[label]!r} and, for "
                f"{path}, {name!r}. Download the file again"
            )
    if set(names) != set(range(len(names))):
        raise ValueError(
            f"{entry.name}: {file} has {len(names)} classes, but labels {min(names)}..{max(names)}; expected labels "
            f"0..{entry.classes - 1} without a gap. Download the file again"
        )
    return tuple(names[label] for label in range(len(names)))


def _from_torchvision(entry: Entry, root: Path, split: str) -> Listing:
    """Return the listing of the original release, in the folder where torchvision expects it."""
    import torchvision

    assert entry.torchvision is not None
    kind, folder = entry.torchvision
    above = [root.parent] if root.name == folder.split("/")[0] else []
    bases = [base for base in (*candidate_folders(entry, root), *above) if (base / folder).is_dir()]
    if not bases:
        raise FileNotFoundError(_no_split_file(entry, root, split))
    if entry.scipy and importlib.util.find_spec("scipy") is None:
        raise ImportError(
            f"{entry.name}: the original labels are MATLAB files: pip install scipy, or get {entry.split_file}, which "
            "does not need it"
        )
    options: dict[str, Any] = {} if "all" in entry.original else {"split": split}
    reader = getattr(torchvision.datasets, kind)
    if kind != "OxfordIIITPet":
        if "loader" not in inspect.signature(reader).parameters:
            raise ImportError(
                f"{entry.name}: the original release needs torchvision 0.22 or later: pip install -U torchvision, or get "
                f"{entry.split_file}, which does not need it"
            )
        options["loader"] = str  # items are then (path, label), and no image is read
    try:
        dataset = reader(bases[0], **options)
    except (RuntimeError, OSError) as error:
        raise FileNotFoundError(
            f"{entry.name}: torchvision cannot read {bases[0] / folder}: {error}. {_expected(entry)}"
        ) from error
    if kind == "OxfordIIITPet":
        items = list(zip(dataset._images, dataset._labels, strict=True))
    else:
        items = sorted(dataset[i] for i in range(len(dataset))) if "all" in entry.original else [*dataset]
    names = tuple(entry.rename(name) for name in dataset.classes)
    return Listing([Path(path) for path, _ in items], [int(label) for _, label in items], names)


def _aircraft(entry: Entry, root: Path, split: str) -> Listing:
    """Return the listing of FGVC-Aircraft, whose own splits, in text files, CoOp and the paper use."""
    wanted = f"images_variant_{split}.txt"
    folder = next((place for place in candidate_folders(entry, root) if (place / wanted).is_file()), None)
    if folder is None or not (folder / "variants.txt").is_file():
        raise FileNotFoundError(f"{entry.name}: no {wanted} and variants.txt in {root}. {_expected(entry)}")
    classes = read_text(entry.name, folder / "variants.txt").splitlines()
    lines = [line.partition(" ")[::2] for line in read_text(entry.name, folder / wanted).splitlines()]
    if unknown := sorted({name for _, name in lines} - set(classes)):
        raise ValueError(
            f"{entry.name}: labels and names do not match: {folder / wanted} has variants that are not in variants.txt: "
            f"{quoted(unknown)}. Unpack the dataset again"
        )
    labels = [classes.index(name) for _, name in lines]
    names = [path_below(entry.name, folder / wanted, image) for image, _ in lines]
    return Listing([folder / "images" / f"{name}.jpg" for name in names], labels, tuple(classes))


def _no_split_file(entry: Entry, root: Path, split: str) -> str:
    deeper = next((file for depth in ("*/", "*/*/") for file in sorted(root.glob(depth + entry.split_file))), None)
    if deeper is not None and split in entry.counts:
        return f"{entry.name}: {entry.split_file} is not in {root}, but below it: pass root={str(deeper.parent)!r}"
    own = [f"split={name!r}" for name in entry.original if name != split]
    return (
        f"{entry.name}: no {entry.split_file} (CoOp's splits, which the paper uses) in {root} or its folders "
        f"{quoted(entry.folders)}"
        + (f", and nothing that torchvision reads as {entry.torchvision[0]}" if entry.torchvision else "")
        + (f"; without that file there is only {' or '.join(own)}" if own else "")
        + (", from which split_validation makes a validation set" if own and split == "val" else "")
        + f". {_expected(entry)}"
    )


def _expected(entry: Entry) -> str:
    return f"Expected below the root: {entry.layout}"
