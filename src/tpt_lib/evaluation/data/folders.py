"""Read folders with one subfolder per class, and check them before any image is read."""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from importlib import resources
from pathlib import Path
from typing import NamedTuple

from tpt_lib.evaluation.data.registry import Entry

__all__ = ["Listing", "candidate_folders", "imagenet_names", "path_below", "quoted", "read_folder", "read_synsets"]


class Listing(NamedTuple):
    """The image files of a dataset, the label of each, and the class names. No image has been read."""

    paths: list[Path]
    labels: list[int]
    classes: tuple[str, ...]


def quoted(names: Iterable[object], limit: int = 3) -> str:
    """Return the first few names in quotes, for an error message.

    >>> quoted("abcde")
    "'a', 'b', 'c' and 2 more"
    """
    texts = [repr(str(name)) for name in names]
    return ", ".join(texts[:limit]) + (f" and {len(texts) - limit} more" if len(texts) > limit else "") or "nothing"


def path_below(name: str, file: Path, path: str) -> str:
    """Return a path from a split file relative to the dataset's folder; refuse one that points elsewhere."""
    if ".." in re.split(r"[/\\]", path) or Path(path).drive:
        raise ValueError(
            f"{name}: {file} points outside of the dataset's folder: {path!r}. Download it again, from a source you trust"
        )
    return path.removeprefix("./").lstrip("/")


def candidate_folders(entry: Entry, root: Path) -> list[Path]:
    """Return the existing folders that may hold the dataset: the root and folders below it."""
    return [place for place in (root, *(root / folder for folder in entry.folders)) if place.is_dir()]


@cache
def imagenet_names(subset: str = "imagenet") -> dict[str, str]:
    """Return the class name of each synset of ImageNet, or of a subset of its classes, in the order of the labels."""
    from open_clip import IMAGENET_CLASSNAMES
    from timm.data import ImageNetInfo

    names = dict(zip(ImageNetInfo().label_names(), IMAGENET_CLASSNAMES, strict=True))
    subsets = tomllib.loads(
        resources.files("tpt_lib.evaluation.data").joinpath("imagenet_subsets.toml").read_text("utf-8")
    )
    return {synset: names[synset] for synset in subsets.get(subset, names)}


def read_folder(folder: Path, classes: Sequence[str] | None, *, subset: bool) -> Listing:
    """Return the listing of any folder of class folders.

    Classes are named by their folders, or by ImageNet's class names if all folders are synsets.
    """
    images = _class_images(folder)
    if not any(images.values()):
        raise ValueError(_nothing_found(folder, images))
    empty = [name for name, files in images.items() if not files]
    if empty and not subset:
        deeper = _likely_root(folder)
        raise ValueError(
            f"{folder}: {len(empty)} of {len(images)} class folders have no images in them: {quoted(empty)}. "
            + (f"Did you mean {deeper}? " if deeper else "")
            + "Remove them, or pass subset=True to keep their names as classes"
        )
    if classes is None and all(name.isdecimal() for name in images):
        raise ValueError(
            f"{folder}: its folders are numbers, {quoted(images)}, which do not name the classes: pass classes=[…], the "
            "names in the order of the numbers (for ImageNet-V2 call load_dataset('imagenet-v2', root))"
        )
    synsets = imagenet_names() if all(re.fullmatch(r"n\d{8}", name) for name in images) else {}
    return _listing(images, [synsets.get(name, name) for name in images])


def read_synsets(entry: Entry, root: Path, split: str) -> Listing:
    """Return the listing of ImageNet or a variant: one folder per synset, or per label number in ImageNet-V2."""
    names = imagenet_names(entry.name)
    keys = list(names)
    numbers = [str(i) for i in range(len(keys))]
    wanted = [*keys, *numbers] if entry.name == "imagenet-v2" else keys
    candidates = candidate_folders(entry, root)
    if entry.name == "imagenet":
        part = {"test": "val"}.get(split, split)
        candidates = [place / part for place in candidates if (place / part).is_dir()] + candidates
    if entry.corruptions:
        candidates = [place / split for place in candidates if (place / split).is_dir()]
        if not candidates:
            raise FileNotFoundError(
                f"{entry.name}: no folder {split!r} in {root}. Unpack this corruption. Expected below the root: {entry.layout}"
            )
    folder = next((c for c in candidates if any((c / name).is_dir() for name in wanted)), None)
    if folder is None:
        raise ValueError(_no_synsets(entry, root, candidates, wanted))
    images = _class_images(folder)
    if entry.name == "imagenet-v2" and all(name.isdecimal() for name in images):
        keys = numbers
    if unknown := [name for name in images if name not in keys]:
        raise ValueError(
            f"{entry.name}: {len(unknown)} of {len(images)} folders in {folder} are not among its {len(keys)} classes: "
            f"{quoted(unknown)}; expected {keys[0]!r} … {keys[-1]!r}. Is this another dataset? Otherwise remove them"
        )
    return _listing({key: images.get(key, []) for key in keys}, list(names.values()))


def _class_images(folder: Path) -> dict[str, list[Path]]:
    """Return the images directly in each subfolder. Numbered folders are in numeric order; hidden ones are skipped."""
    names = [one.name for one in os.scandir(folder) if one.is_dir() and not one.name.startswith((".", "__"))]
    ordered = sorted(names, key=int) if all(name.isdecimal() for name in names) else sorted(names)
    return {name: _images(folder / name) for name in ordered}


def _likely_root(folder: Path, wanted: Sequence[str] = (), depth: int = 3) -> Path | None:
    """Return the nearest folder below that holds class folders with images, with wanted names if any are given."""
    level = list(_folders(folder))
    for _ in range(depth):
        for candidate in level:
            if any((not wanted or one.name in wanted) and _images(one) for one in _folders(candidate)):
                return candidate
        level = [below for candidate in level for below in _folders(candidate)]
    return None


def _listing(images: dict[str, list[Path]], names: list[str]) -> Listing:
    labeled = [(path, label) for label, files in enumerate(images.values()) for path in files]
    return Listing([path for path, _ in labeled], [label for _, label in labeled], tuple(names))


def _folders(folder: Path) -> Iterator[Path]:
    return (Path(one.path) for one in sorted(os.scandir(folder), key=lambda one: one.name) if one.is_dir())


def _images(folder: Path) -> list[Path]:
    from torchvision.datasets.folder import IMG_EXTENSIONS

    with os.scandir(folder) as inside:
        return sorted(folder / one.name for one in inside if one.name.lower().endswith(IMG_EXTENSIONS))


def _nothing_found(folder: Path, images: dict[str, list[Path]]) -> str:
    loose, deeper = _images(folder), _likely_root(folder)
    if deeper is not None:
        return (
            f"{folder}: none of its folders ({quoted(images)}) directly contains an image; it seems one level too high. "
            f"Did you mean {deeper}?"
        )
    if loose:
        return (
            f"{folder}: its {len(loose)} images are in no class folder; expected class/image.jpg, one folder per class"
        )
    return f"{folder}: expected one folder of images per class, but found {quoted(images)} and no image in them"


def _no_synsets(entry: Entry, root: Path, candidates: list[Path], wanted: list[str]) -> str:
    end = f"Expected below the root: {entry.layout}"
    deeper = _likely_root(root, wanted)
    if deeper is not None:
        return (
            f"{entry.name}: no class folders in {root}, but there are some below it: pass root={str(deeper)!r}. {end}"
        )
    for candidate in candidates:
        if loose := _images(candidate):
            return (
                f"{entry.name}: {len(loose)} images are directly in {candidate}; sort them into one folder per synset "
                f"first. {end}"
            )
    found = [one.name for candidate in candidates for one in _folders(candidate)]
    return (
        f"{entry.name}: no folder in {root} has the name of one of its classes, such as {wanted[0]!r}; found "
        f"{quoted(found)}. {end}. To load a folder with other class names, pass its path: load_dataset(path)"
    )
