"""Load a dataset by name or from a path, and check it before an image is read."""

from __future__ import annotations

import difflib
import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from torch.utils.data import Dataset

from tpt_lib.evaluation.data.eval_set import EvalSet, ImageFiles
from tpt_lib.evaluation.data.folders import Listing, read_folder
from tpt_lib.evaluation.data.objects import from_object
from tpt_lib.evaluation.data.registered import checked_names, load_registered
from tpt_lib.evaluation.data.registry import EMBEDDED, ENTRIES
from tpt_lib.evaluation.data.tables import TABLES, read_table
from tpt_lib.evaluation.data.tar_format import is_tar
from tpt_lib.evaluation.data.tar_shards import expand_braces, read_shards

__all__ = ["list_datasets", "load_dataset"]

Source = str | os.PathLike[str] | Dataset[Any] | Iterable[Any] | Callable[[], Iterable[Any]]


def list_datasets() -> tuple[str, ...]:
    """Return the names that ``load_dataset`` takes.

    Returns:
        The names, those of the paper first.

    >>> list_datasets()[:3]
    ('imagenet', 'imagenet-a', 'imagenet-v2')
    """
    return tuple(ENTRIES)


def load_dataset(
    source: Source,
    root: str | os.PathLike[str] | None = None,
    *,
    split: str = "test",
    classes: Sequence[str] | None = None,
    image: str | None = None,
    label: str | None = None,
    subset: bool = False,
    seed: int = 0,
) -> EvalSet:
    """Load a dataset by name, path or object, and check it before any image is read.

    Args:
        source: one of ``list_datasets()``; the path of a folder with one folder of images per class; a CSV, TSV or Parquet
            file of paths and labels; tar shards in the layout of webdataset, as ``"shards-{000..009}.tar"``, a list, or a
            folder of them; a dataset of the Hugging Face library; a torch dataset of (image, label); or a stream of (image,
            label) without a length: an ``IterableDataset``, or a function that returns an iterator. A stream is read once to
            count its samples, and must yield them in the same order each time.
        root: location of a dataset with a name: its own folder, or the folder that holds all of them.
            ``docs/datasets.md`` lists the expected files. For a table, the folder that relative paths start from (default:
            the folder of the table). Other paths are relative to it.
        split: ``"test"`` (default), ``"val"`` or ``"train"``, where the dataset has it; a domain of PACS, or a corruption and
            severity of ImageNet-C, such as ``"fog/3"``; for Bongard-HOI one of its four splits, such as
            ``"unseen_act_unseen_obj"``.
        classes: names to use instead of those found, in the order of the labels. Needed where labels are numbers.
        image: column of the images of a table or a Hugging Face dataset, or part of a tar file's samples, such as ``"png"``
            (default: guessed from names and types).
        label: column or part of the labels (default: guessed likewise).
        subset: accept a part of the dataset (default False): a number of images other than the published one, missing
            classes, missing files. Class names remain those of the whole dataset.
        seed: fixes which images of a Bongard problem are its queries (default 0).

    Returns:
        An ``EvalSet`` of (image, label); no image was decoded.

    Raises:
        ValueError: if the files found are not the dataset; the message says what was expected and the likely fix.
        FileNotFoundError: if a folder or a file is missing.

    >>> import PIL.Image
    >>> for name in ("cat", "dog"):
    ...     (folder / name).mkdir()
    ...     PIL.Image.new("RGB", (8, 8)).save(folder / name / "1.png")
    >>> load_dataset(folder).classes
    ('cat', 'dog')
    >>> rows = (folder / "photos.csv").write_text("file,label\\ncat/1.png,cat\\ndog/1.png,dog\\n")
    >>> load_dataset(folder / "photos.csv")
    <EvalSet photos/test: 2 samples of 2 classes, 'a photo of a {}.', crop>
    """
    if isinstance(source, list | tuple) and source and all(isinstance(one, str | os.PathLike) for one in source):
        return _from_shards(source, root, split, classes, image, label, subset=subset)
    if not isinstance(source, str | os.PathLike):
        if root is not None or subset:
            raise ValueError(
                f"load_dataset: root and subset have no effect on a {type(source).__name__}; leave them out"
            )
        return from_object(source, split, classes, image, label)
    if not str(source).strip():
        raise ValueError(f"load_dataset: pass a folder or one of {_names()}, but got {source!r}")
    path = Path(source).expanduser()
    if path.suffix.lower() in TABLES and path.is_file():
        folder = path.parent if root is None else _existing_folder(root)
        found = read_table(path, folder, image=image, label=label, classes=classes, subset=subset)
        return _eval_set(path.stem, found, split, folder)
    place = Path(root or "", path)
    if is_tar(source) or _has_shards(place):
        shards = sorted(filter(is_tar, place.iterdir())) if place.is_dir() else expand_braces(str(path))
        return _from_shards(shards, root, split, classes, image, label, subset=subset)
    if image is not None or label is not None:
        raise ValueError(
            f"load_dataset: image and label name columns, which {str(source)!r} does not have; leave them out"
        )
    key = str(source).lower().replace("_", "-")
    if isinstance(source, str) and key in ENTRIES:
        return load_registered(ENTRIES[key], _root(key, root), split, classes, subset=subset, seed=seed)
    if not place.is_dir():
        raise FileNotFoundError(_not_found(source, key))
    found = read_folder(place, classes, subset=subset)
    if classes is not None:
        found = found._replace(classes=tuple(checked_names(place.resolve().name, classes, found.classes)))
    return _eval_set(place.resolve().name, found, split, place)


def _eval_set(name: str, found: Listing, split: str, root: Path) -> EvalSet:
    return EvalSet(name, ImageFiles(found.paths, found.labels), found.classes, split=split, root=str(root))


def _has_shards(folder: Path) -> bool:
    """Return whether this is a folder of tar files, without class folders."""
    return folder.is_dir() and any(map(is_tar, folder.iterdir())) and not any(one.is_dir() for one in folder.iterdir())


def _from_shards(
    source: Sequence[str | os.PathLike[str]],
    root: str | os.PathLike[str] | None,
    split: str,
    classes: Sequence[str] | None,
    image: str | None,
    label: str | None,
    *,
    subset: bool,
) -> EvalSet:
    if odd := [one for one in source if not is_tar(one)]:
        raise ValueError(
            f"load_dataset: a list must be of tar files, or of (image, label), but {str(odd[0])!r} is not a tar file"
        )
    if subset:
        raise ValueError("load_dataset: subset has no effect on tar files; list those that you want")
    shards = [Path(root or "", one).expanduser() for one in source]
    samples, names = read_shards(shards, image, label, classes)
    name = shards[0].name.split(".")[0].rstrip("0123456789-_") or shards[0].absolute().parent.name
    return EvalSet(name, samples, names, split=split)


def _root(name: str, root: str | os.PathLike[str] | None) -> Path:
    if root is None:
        raise ValueError(
            f"load_dataset: {name!r} needs a root: load_dataset({name!r}, root). Expected below it: {ENTRIES[name].layout}"
        )
    return _existing_folder(root)


def _existing_folder(root: str | os.PathLike[str]) -> Path:
    folder = Path(root).expanduser()
    if not folder.is_dir():
        raise FileNotFoundError(f"load_dataset: the root {str(root)!r} is not a folder")
    return folder


def _not_found(source: str | os.PathLike[str], key: str) -> str:
    if Path(source).suffix.lower() in TABLES:
        return f"load_dataset: there is no file {str(source)!r}"
    if key in EMBEDDED:
        return f"load_dataset: {str(source)!r} is embedded and has no files; load it with {EMBEDDED[key]}"
    unknown = f"load_dataset: {str(source)!r} is neither a folder nor the name of a dataset"
    near = difflib.get_close_matches(key, (*ENTRIES, *EMBEDDED), n=1)
    if not near:
        return f"{unknown}; expected one of {_names()}"
    loaded = f", which {EMBEDDED[near[0]]} loads" if near[0] in EMBEDDED else ""
    return f"{unknown}; did you mean {near[0]!r}{loaded}?"


def _names() -> str:
    """Return all names of datasets, for errors."""
    loaders = "load_tiny_drawings, load_tiny_bongard"
    return f"the names {', '.join(ENTRIES)}, or an embedded one: {', '.join(EMBEDDED)} ({loaders})"
