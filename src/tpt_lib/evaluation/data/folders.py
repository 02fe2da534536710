"""Folders of class folders: listed, put in order, named, and checked before any image is read."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from importlib import resources
from pathlib import Path

from tpt_lib.evaluation.data.registry import Entry, Listing, places

__all__ = ["class_images", "imagenet_names", "in_order", "likely_root", "read_folder", "read_synsets", "shown"]

SUBSETS = {"imagenet-a": "imagenet_a_synsets.txt", "imagenet-r": "imagenet_r_synsets.txt"}


def shown(names: Iterable[object], limit: int = 3) -> str:
    """The first few of them, for an error."""
    quoted = [repr(str(name)) for name in names]
    return ", ".join(quoted[:limit]) + (f" and {len(quoted) - limit} more" if len(quoted) > limit else "") or "nothing"


def in_order(names: Iterable[str]) -> list[str]:
    """Folder names sorted, as numbers if all of them are: 2 comes before 10."""
    names = list(names)
    return sorted(names, key=int) if all(name.isdecimal() for name in names) else sorted(names)


@cache
def imagenet_names(subset: str = "imagenet") -> dict[str, str]:
    """The class name of each synset of ImageNet (or of a subset of its classes), in the order of the labels."""
    from open_clip import IMAGENET_CLASSNAMES
    from timm.data import ImageNetInfo

    names = dict(zip(ImageNetInfo().label_names(), IMAGENET_CLASSNAMES, strict=True))
    if subset not in SUBSETS:
        return names
    text = resources.files("timm").joinpath("data", "_info", SUBSETS[subset]).read_text()
    return {synset: names[synset] for synset in text.split()}


def class_images(folder: Path) -> dict[str, list[Path]]:
    """The images directly in each folder of a folder, sorted; hidden folders are no classes."""
    names = [one.name for one in os.scandir(folder) if one.is_dir() and not one.name.startswith((".", "__"))]
    return {name: _images(folder / name) for name in in_order(names)}


def likely_root(folder: Path, wanted: Sequence[str] = (), depth: int = 3) -> Path | None:
    """The nearest folder below that holds class folders with images, of the wanted names if there are any."""
    level = list(_folders(folder))
    for _ in range(depth):
        for candidate in level:
            inside = list(_folders(candidate))
            if any((not wanted or one.name in wanted) and _images(one) for one in inside):
                return candidate
        level = [below for candidate in level for below in _folders(candidate)]
    return None


def read_folder(folder: Path, classes: Sequence[str] | None, *, subset: bool) -> Listing:
    """Any folder of class folders. The names are those of the folders, or ImageNet's if all of them are its synsets."""
    images = class_images(folder)
    if not any(images.values()):
        raise ValueError(_nothing_found(folder, images))
    empty = [name for name, files in images.items() if not files]
    if empty and not subset:
        deeper = likely_root(folder)
        raise ValueError(
            f"{folder}: {len(empty)} of {len(images)} class folders have no images in them: {shown(empty)}. "
            + (f"Is {deeper} the folder that was meant? " if deeper else "")
            + "Remove them, or pass subset=True to keep their names as classes"
        )
    synsets = imagenet_names() if all(re.fullmatch(r"n\d{8}", name) for name in images) else {}
    if classes is None and all(name.isdecimal() for name in images):
        raise ValueError(
            f"{folder}: its folders are numbers, {shown(images)}, and say nothing of their classes: pass classes=[…], the "
            "names in the order of the numbers (ImageNet-V2 is load_dataset('imagenet-v2', root))"
        )
    return _listing(images, [synsets.get(name, name) for name in images])


def read_synsets(entry: Entry, root: Path, split: str) -> Listing:
    """ImageNet or one of its variants: a folder for each synset; ImageNet-V2 has the labels' numbers instead."""
    names = imagenet_names(entry.name)
    keys = list(names)
    part = {"test": "val"}.get(split, split)
    candidates = places(entry, root)
    if entry.name == "imagenet":
        candidates = [place / part for place in candidates if (place / part).is_dir()] + candidates
    numbers = [str(i) for i in range(len(keys))]
    wanted = [*keys, *numbers] if entry.name == "imagenet-v2" else keys
    folder = next((c for c in candidates if any((c / name).is_dir() for name in wanted)), None)
    if folder is None:
        raise ValueError(_no_synsets(entry, root, candidates, wanted))
    images = class_images(folder)
    if entry.name == "imagenet-v2" and all(name.isdecimal() for name in images):
        keys = numbers
    unknown = [name for name in images if name not in keys]
    if unknown:
        raise ValueError(
            f"{entry.name}: {len(unknown)} of {len(images)} folders in {folder} are not among its {len(keys)} classes: "
            f"{shown(unknown)}; expected {keys[0]!r} … {keys[-1]!r}. Is this another dataset? Otherwise remove them"
        )
    return _listing({key: images.get(key, []) for key in keys}, list(names.values()))


def _listing(images: dict[str, list[Path]], names: list[str]) -> Listing:
    labelled = [(path, label) for label, files in enumerate(images.values()) for path in files]
    return Listing([path for path, _ in labelled], [label for _, label in labelled], tuple(names))


def _folders(folder: Path) -> Iterator[Path]:
    return (Path(one.path) for one in sorted(os.scandir(folder), key=lambda one: one.name) if one.is_dir())


def _images(folder: Path) -> list[Path]:
    from torchvision.datasets.folder import IMG_EXTENSIONS

    with os.scandir(folder) as inside:
        return sorted(folder / one.name for one in inside if one.name.lower().endswith(IMG_EXTENSIONS))


def _nothing_found(folder: Path, images: dict[str, list[Path]]) -> str:
    loose, deeper = _images(folder), likely_root(folder)
    if deeper is not None:
        return (
            f"{folder}: no image lies directly in one of its folders ({shown(images)}); it seems one level too high. Is "
            f"{deeper} the folder that was meant?"
        )
    if loose:
        return f"{folder}: its {len(loose)} images lie in no class folder; expected class/image.jpg, a folder for each class"
    return f"{folder}: expected folders of images, one for each class, but found {shown(images)} and no image in them"


def _no_synsets(entry: Entry, root: Path, candidates: list[Path], wanted: list[str]) -> str:
    end = f"Expected below the root: {entry.layout}"
    deeper = likely_root(root, wanted)
    if deeper is not None:
        return f"{entry.name}: no class folders in {root}, but there are some deeper: pass root={str(deeper)!r}. {end}"
    for candidate in candidates:
        if loose := _images(candidate):
            return (
                f"{entry.name}: {len(loose)} images lie directly in {candidate}; they have to be sorted into a folder for "
                f"each synset first. {end}"
            )
    found = [one.name for candidate in candidates for one in _folders(candidate)]
    return (
        f"{entry.name}: no folder in {root} is named by a class of it, such as {wanted[0]!r}; found {shown(found)}. {end}. "
        "A folder with names of its own is loaded by its path: load_dataset(path)"
    )
