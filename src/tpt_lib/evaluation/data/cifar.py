"""Read CIFAR-10, CIFAR-100 and their corrupted versions, whose images are in arrays, not in files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing
from torch.utils.data import Dataset

from tpt_lib.evaluation.data.folders import candidate_folders, quoted
from tpt_lib.evaluation.data.registry import SEVERITIES, Entry

__all__ = ["ArrayImages", "read_cifar"]

Array = numpy.typing.NDArray[Any]


class ArrayImages(Dataset[tuple[Array, int]]):
    """A torch dataset of (image, label) from an array of images ``(N, H, W, 3)``, uint8."""

    def __init__(self, data: Array, targets: Sequence[int], file: Path) -> None:
        self.data, self.targets, self.file = data, [int(label) for label in targets], file

    def __len__(self) -> int:
        return len(self.data)

    def __getitem__(self, index: int) -> tuple[Array, int]:
        return self.data[index], self.targets[index]


def read_cifar(entry: Entry, root: Path, split: str) -> ArrayImages:
    """Return the images of CIFAR, ``"train"`` or ``"test"``, or of a corruption and severity, such as ``"fog/3"``.

    Args:
        entry: the dataset.
        root: its folder, or the folder that holds it.
        split: name of the split.

    Raises:
        FileNotFoundError: if a file is missing or differs from the published one.
        ValueError: if arrays have other shapes than published.
    """
    return _corrupted(entry, root, split) if entry.corruptions else _original(entry, root, split)


def _original(entry: Entry, root: Path, split: str) -> ArrayImages:
    import torchvision

    assert entry.torchvision is not None
    kind, folder = entry.torchvision
    above = [root.parent] if root.name == folder else []
    base = next((base for base in (*candidate_folders(entry, root), *above) if (base / folder).is_dir()), None)
    if base is None:
        raise FileNotFoundError(f"{entry.name}: no folder {folder!r} in {root}. {_expected(entry)}")
    try:
        found = getattr(torchvision.datasets, kind)(base, train=split == "train")
    except (RuntimeError, OSError) as error:
        raise FileNotFoundError(
            f"{entry.name}: {base / folder} is incomplete, or its checksums are not the published ones ({error}). Unpack it "
            f"again. {_expected(entry)}"
        ) from error
    own = tuple(found.classes)
    if own != entry.names:
        odd = quoted(sorted({*own} ^ {*entry.names}))
        raise ValueError(f"{entry.name}: the class names in {base / folder} are not the published ones: {odd}")
    return ArrayImages(found.data, found.targets, base / folder)


def _corrupted(entry: Entry, root: Path, split: str) -> ArrayImages:
    corruption, severity = split.split("/")
    places = candidate_folders(entry, root)
    folder = next((place for place in places if (place / f"{corruption}.npy").is_file()), None)
    if folder is None or not (folder / "labels.npy").is_file():
        raise FileNotFoundError(
            f"{entry.name}: no {corruption}.npy and labels.npy in {quoted([folder] if folder else places)}. {_expected(entry)}"
        )
    file = folder / f"{corruption}.npy"
    images, labels = _load(entry, file), _load(entry, folder / "labels.npy")
    parts = len(SEVERITIES)
    if images.dtype != np.uint8 or images.ndim != 4 or images.shape[3] != 3 or len(images) % parts:
        raise ValueError(
            f"{entry.name}: {file} must have {parts} severities of images, uint8 ({parts} N, 32, 32, 3), but has "
            f"{images.dtype} {images.shape}. Download it again"
        )
    if labels.shape != (len(images),):
        raise ValueError(f"{entry.name}: {file} has {len(images)} images, but labels.npy is {labels.shape}")
    each = len(images) // parts
    part = slice((int(severity) - 1) * each, int(severity) * each)
    return ArrayImages(np.asarray(images[part]), labels[part].tolist(), file)


def _load(entry: Entry, file: Path) -> Array:
    try:
        found: Array = np.load(file, mmap_mode="r")
    except (ValueError, EOFError) as error:
        raise ValueError(
            f"{entry.name}: {file} is not a NumPy array, or was cut short: {error}. Download it again"
        ) from error
    return found


def _expected(entry: Entry) -> str:
    return f"Expected below the root: {entry.layout}"
