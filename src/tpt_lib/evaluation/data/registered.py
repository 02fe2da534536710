"""Load a dataset of the registry, and check it against its published numbers before an image is read."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tpt_lib.evaluation.data.bongard_hoi import read_problems
from tpt_lib.evaluation.data.cifar import read_cifar
from tpt_lib.evaluation.data.class_names import permutation
from tpt_lib.evaluation.data.domains import read_domain
from tpt_lib.evaluation.data.eval_set import EvalSet, ImageFiles
from tpt_lib.evaluation.data.folders import Listing, quoted, read_synsets
from tpt_lib.evaluation.data.image_lists import read_list
from tpt_lib.evaluation.data.registry import Entry
from tpt_lib.evaluation.data.split_files import missing_files, read_splits

__all__ = ["checked_names", "load_registered", "warn_if_permuted"]


def load_registered(
    entry: Entry, root: Path, split: str, classes: Sequence[str] | None, *, subset: bool, seed: int
) -> EvalSet:
    """Return a dataset of the registry; ``load_dataset`` describes the arguments."""
    if entry.family == "problems":
        if classes is not None:
            raise ValueError(
                f"load_dataset: classes have no effect on {entry.name}, whose problems have no class names"
            )
        problems, split = read_problems(entry, root, split, subset=subset, seed=seed)
        return EvalSet(entry.name, problems, ("positive", "negative"), "{}.", entry.recipe, split, str(root))
    _check_split(entry, split)
    if entry.family == "cifar":
        images = read_cifar(entry, root, split)
        names = entry.names if classes is None else checked_names(entry.name, classes, entry.names)
        if not subset:
            _check_count(entry, len(images), split, images.file)
        return EvalSet(entry.name, images, names, split=split, recipe=entry.recipe)
    found, split = _listing(entry, root, split, subset=subset)
    if not subset:
        _check_classes(entry, found)
        _check_count(entry, len(found.paths), split, found.paths[0].parent)
    names = found.classes if classes is None else checked_names(entry.name, classes, found.classes)
    samples = ImageFiles(found.paths, found.labels)
    return EvalSet(entry.name, samples, names, split=split, recipe=entry.recipe, root=str(root))


def _listing(entry: Entry, root: Path, split: str, *, subset: bool) -> tuple[Listing, str]:
    if entry.family == "synsets":
        return read_synsets(entry, root, split), split
    if entry.family == "domains":
        return read_domain(entry, root, split), split
    found, split = (
        (read_list(entry, root, split), split) if entry.family == "lists" else read_splits(entry, root, split)
    )
    return _present(entry, found, subset=subset), split


def _check_split(entry: Entry, split: str) -> None:
    known = {**entry.counts, **entry.original}
    if split not in known:
        choices = (
            f"a corruption and a severity from 1 to 5, such as {next(iter(known))!r}, with one of the corruptions "
            f"{', '.join(entry.corruptions)}"
            if entry.corruptions
            else f"one of {', '.join(known)}"
        )
        raise ValueError(f"{entry.name}: split must be {choices}, but got {split!r}")


def checked_names(name: str, classes: Sequence[str], found: Sequence[str]) -> Sequence[str]:
    """Return the caller's class names, if there are as many as were found."""
    if isinstance(classes, str) or len(classes) != len(found):
        got = repr(classes) if isinstance(classes, str) else f"{len(classes)}"
        raise ValueError(
            f"load_dataset: {name} has {len(found)} classes, {quoted(found)}, so classes must be {len(found)} names, but "
            f"got {got}"
        )
    warn_if_permuted(name, classes, found)
    return classes


def warn_if_permuted(name: str, classes: Sequence[str], found: Sequence[str]) -> None:
    """Warn if the caller's class names are those that were found, in another order."""
    if said := permutation(classes, found):
        warnings.warn(
            f"load_dataset: classes are the names that {name} has, in another order: {said}. Labels keep the order in which "
            "names were found, so every accuracy will be wrong; leave classes out, or pass them in that order",
            stacklevel=2,
        )


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
    empty = [name for label, name in enumerate(found.classes) if label not in labels and name not in entry.absent]
    if empty:
        raise ValueError(
            f"{entry.name}: {len(empty)} of {len(found.classes)} classes have no images: {quoted(empty)}. Unpack the images "
            "again (and download the split file again, if there is one), or pass subset=True to accept a part"
        )


def _check_count(entry: Entry, found: int, split: str, place: Any) -> None:
    original = split.removeprefix("original-")
    expected = entry.original[original] if original != split else entry.counts[split]
    if not entry.confirmed:
        raise ValueError(
            f"{entry.name}: found {found} images of {split!r}; catalogs of datasets say {expected}, but its own "
            "documentation does not, so it cannot be checked whether these are all. Pass subset=True to accept this number"
        )
    if found != expected:
        more = "more" if found > expected else "fewer"
        raise ValueError(
            f"{entry.name}: found {found} images of {split!r}, {more} than the published {expected}; the first "
            f"is in {place}. Unpack the dataset again and remove foreign files, or pass subset=True to "
            "accept this number"
        )
