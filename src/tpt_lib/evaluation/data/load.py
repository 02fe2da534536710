"""Load the paper's datasets by name, any image folder, or any torch dataset, and check it before an image is read."""

from __future__ import annotations

import difflib
import os
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from torch.utils.data import Dataset

from tpt_lib.evaluation.data.bongard_hoi import read_problems
from tpt_lib.evaluation.data.class_names import permutation
from tpt_lib.evaluation.data.eval_set import EvalSet, ImageFiles
from tpt_lib.evaluation.data.folders import Listing, quoted, read_folder, read_synsets
from tpt_lib.evaluation.data.registry import ENTRIES, Entry
from tpt_lib.evaluation.data.split_files import missing_files, read_splits

__all__ = ["list_datasets", "load_dataset"]


def list_datasets() -> tuple[str, ...]:
    """Return the names that ``load_dataset`` takes.

    >>> list_datasets()[:3]
    ('imagenet', 'imagenet-a', 'imagenet-v2')
    """
    return tuple(ENTRIES)


def load_dataset(
    source: str | os.PathLike[str] | Dataset[Any],
    root: str | os.PathLike[str] | None = None,
    *,
    split: str = "test",
    classes: Sequence[str] | None = None,
    subset: bool = False,
    seed: int = 0,
) -> EvalSet:
    """Load a dataset of the paper, an image folder or a torch dataset, and check it before any image is read.

    Args:
        source: one of ``list_datasets()``; or the path of a folder with one folder of images per class; or a torch
            dataset of (image, label).
        root: location of a dataset of the paper: its own folder, or the folder that holds all of them.
            ``docs/datasets.md`` lists the expected files.
        split: ``"test"`` (default), ``"val"`` or ``"train"``, where the dataset has it; for Bongard-HOI one of its four
            splits, such as ``"unseen_act_unseen_obj"``.
        classes: names to use instead of those found, in the order of the labels.
        subset: accept a part of the dataset (default False): a number of images other than the published one, missing
            classes, missing files. Class names remain those of the whole dataset.
        seed: fixes which images of a Bongard problem are its queries (default 0).

    Returns:
        An ``EvalSet`` whose samples are (path, label); images are not decoded.

    Raises:
        ValueError: if the files found are not the dataset; the message says what was expected and the likely fix.
        FileNotFoundError: if a folder or a file is missing.

    >>> import PIL.Image
    >>> for name in ("cat", "dog"):
    ...     (folder / name).mkdir()
    ...     PIL.Image.new("RGB", (8, 8)).save(folder / name / "1.png")
    >>> load_dataset(folder).classes
    ('cat', 'dog')
    """
    if not isinstance(source, str | os.PathLike):
        if root is not None or subset:
            raise ValueError(
                f"load_dataset: root and subset have no effect on a {type(source).__name__}; leave them out"
            )
        return _from_torch(source, classes, split)
    if not str(source).strip():
        raise ValueError(f"load_dataset: pass a folder or one of the names {', '.join(ENTRIES)}, but got {source!r}")
    key = str(source).lower().replace("_", "-")
    if isinstance(source, str) and key in ENTRIES:
        return _registered(ENTRIES[key], _existing_root(key, root), split, classes, subset=subset, seed=seed)
    folder = Path(root or "", source).expanduser()
    if not folder.is_dir():
        near = difflib.get_close_matches(key, ENTRIES, n=1)
        raise FileNotFoundError(
            f"load_dataset: {str(source)!r} is neither a folder nor the name of a dataset"
            + (f"; did you mean {near[0]!r}?" if near else f"; the names are {', '.join(ENTRIES)}")
        )
    found = read_folder(folder, classes, subset=subset)
    return _eval_set(folder.resolve().name, found, classes, split, root=str(folder))


def _registered(
    entry: Entry, root: Path, split: str, classes: Sequence[str] | None, *, subset: bool, seed: int
) -> EvalSet:
    if entry.family == "problems":
        if classes is not None:
            raise ValueError(
                f"load_dataset: classes have no effect on {entry.name}, whose problems have no class names"
            )
        problems, split = read_problems(entry, root, split, subset=subset, seed=seed)
        return EvalSet(entry.name, problems, ("positive", "negative"), "{}.", entry.recipe, split, str(root))
    known = {**entry.counts, **entry.original}
    if split not in known:
        raise ValueError(f"{entry.name}: split must be one of {', '.join(known)}, but got {split!r}")
    if entry.family == "synsets":
        found = read_synsets(entry, root, split)
    else:
        found, split = read_splits(entry, root, split)
        found = _present(entry, found, subset=subset)
    if not subset:
        _check_classes(entry, found)
        _check_count(entry, found, split)
    return _eval_set(entry.name, found, classes, split, recipe=entry.recipe, root=str(root))


def _eval_set(name: str, found: Listing, classes: Sequence[str] | None, split: str, **settings: Any) -> EvalSet:
    names = _checked_names(name, classes, found.classes) if classes is not None else found.classes
    return EvalSet(name, ImageFiles(found.paths, found.labels), names, split=split, **settings)


def _checked_names(name: str, classes: Sequence[str], found: Sequence[str]) -> Sequence[str]:
    if isinstance(classes, str) or len(classes) != len(found):
        got = repr(classes) if isinstance(classes, str) else f"{len(classes)}"
        raise ValueError(
            f"load_dataset: {name} has {len(found)} classes, {quoted(found)}, so classes must be {len(found)} names, but "
            f"got {got}"
        )
    _warn_if_permuted(name, classes, found)
    return classes


def _warn_if_permuted(name: str, classes: Sequence[str], found: Sequence[str]) -> None:
    if said := permutation(classes, found):
        warnings.warn(
            f"load_dataset: classes are the names that {name} has, in another order: {said}. Labels keep the order in which "
            "names were found, so every accuracy will be wrong; leave classes out, or pass them in that order",
            stacklevel=2,
        )


def _from_torch(dataset: Any, classes: Sequence[str] | None, split: str) -> EvalSet:
    own = getattr(dataset, "classes", None)
    names = own if classes is None else classes
    if names is None:
        raise ValueError(
            f"load_dataset: a {type(dataset).__name__} does not name its classes: pass classes=[…], in the "
            "order of the labels"
        )
    if own is not None:
        _warn_if_permuted(type(dataset).__name__, names, own)
    return EvalSet(type(dataset).__name__, dataset, names, split=split)


def _existing_root(name: str, root: str | os.PathLike[str] | None) -> Path:
    if root is None:
        raise ValueError(
            f"load_dataset: {name!r} needs a root: load_dataset({name!r}, root). Expected below it: {ENTRIES[name].layout}"
        )
    folder = Path(root).expanduser()
    if not folder.is_dir():
        raise FileNotFoundError(f"load_dataset: the root {str(root)!r} is not a folder")
    return folder


def _present(entry: Entry, found: Listing, *, subset: bool) -> Listing:
    missing = missing_files(found.paths)
    if missing and (not subset or len(missing) == len(set(found.paths))):
        parents = sorted({path.parent for path in missing})
        raise FileNotFoundError(
            f"{entry.name}: {len(missing)} of {len(found.paths)} images are missing, first {min(missing)}, in the folders "
            f"{quoted(parents)}. Unpack the images again"
            + ("" if subset else ", or pass subset=True to leave them out")
        )
    kept = [(path, label) for path, label in zip(found.paths, found.labels, strict=True) if path not in missing]
    return Listing([path for path, _ in kept], [label for _, label in kept], found.classes)


def _check_classes(entry: Entry, found: Listing) -> None:
    if len(found.classes) != entry.classes:
        raise ValueError(
            f"{entry.name}: found {len(found.classes)} classes, {quoted(found.classes)}, expected {entry.classes}. "
            "Download the split file and the images again, or pass subset=True to accept other classes"
        )
    labels = set(found.labels)
    empty = [name for label, name in enumerate(found.classes) if label not in labels]
    if empty:
        raise ValueError(
            f"{entry.name}: {len(empty)} of {len(found.classes)} classes have no images: {quoted(empty)}. Unpack the images "
            "again (and download the split file again, if there is one), or pass subset=True to accept a part"
        )


def _check_count(entry: Entry, found: Listing, split: str) -> None:
    original = split.removeprefix("original-")
    expected = entry.original[original] if original != split else entry.counts[split]
    if len(found.paths) != expected:
        more = "more" if len(found.paths) > expected else "fewer"
        raise ValueError(
            f"{entry.name}: found {len(found.paths)} images of {split!r}, {more} than the published {expected}; the first "
            f"is in {found.paths[0].parent}. Unpack the dataset again and remove foreign files, or pass subset=True to "
            "accept this number"
        )
