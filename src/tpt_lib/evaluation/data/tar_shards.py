"""Read datasets of tar shards in the layout of webdataset.

Headers are read once. Each image is then read from its offset in the file, so that a process reads only the bytes of its own
samples. Compressed files have no offsets and are read as a stream.
"""

from __future__ import annotations

import os
import re
import tarfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from torch import Tensor
from torch.utils.data import Dataset

from tpt_lib.evaluation.data.columns import class_labels
from tpt_lib.evaluation.data.folders import quoted
from tpt_lib.evaluation.data.stream import read_stream
from tpt_lib.evaluation.data.tar_format import (
    Parts,
    check_end,
    content_of,
    grouped,
    image_part,
    is_compressed,
    label_of,
    open_tar,
)
from tpt_lib.views.reading import read_encoded

__all__ = ["TarSamples", "expand_braces", "read_shards"]


class TarSamples(Dataset[tuple[Tensor, int]]):
    """A torch dataset of (image, label) at known offsets in tar files.

    Attributes:
        paths: name of each image, ``shard.tar/key.jpg``, relative to the folder that all shards share.
        targets: the labels.
    """

    def __init__(
        self,
        shards: Sequence[str],
        places: Sequence[tuple[int, int, int]],
        paths: Sequence[str],
        targets: Sequence[int],
    ) -> None:
        self.shards, self.places, self.paths, self.targets = list(shards), list(places), list(paths), list(targets)

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        shard, offset, size = self.places[index]
        with open(self.shards[shard], "rb") as file:
            file.seek(offset)
            data = file.read(size)
        return read_encoded(data, repr(self.paths[index])), self.targets[index]


class TarStream:
    """The (bytes of an image, label) pairs of tar files, in order. Can be iterated repeatedly."""

    def __init__(self, shards: Sequence[Path], parts: Parts) -> None:
        self.shards, self.parts = list(shards), parts

    def __iter__(self) -> Iterator[tuple[bytes, Any]]:
        for shard in self.shards:
            with open_tar(shard) as tar:
                for key, found in grouped(shard, tar, content_of):
                    where = f"{shard.name}/{key}"
                    yield found[image_part(where, found, self.parts)], label_of(where, found, self.parts, bytes)


def expand_braces(pattern: str) -> list[str]:
    """Return the names that a pattern with braces expands to, as webdataset names shards.

    >>> expand_braces("{train,val}-{08..10}.tar")[1:4]
    ['train-09.tar', 'train-10.tar', 'val-08.tar']
    """
    found = re.search(r"\{(\d+)\.\.(\d+)\}|\{([^{}]*,[^{}]*)\}", pattern)
    if found is None:
        return [pattern]
    first, last, listed = found.groups()
    middle = listed.split(",") if listed else [str(i).zfill(len(first)) for i in range(int(first), int(last) + 1)]
    if not middle:
        raise ValueError(f"load_dataset: {found[0]} in {pattern!r} counts down; write the smaller number first")
    return [name for one in middle for name in expand_braces(pattern[: found.start()] + one + pattern[found.end() :])]


def read_shards(
    shards: Sequence[Path], image: str | None = None, label: str | None = None, classes: Sequence[str] | None = None
) -> tuple[Dataset[Any], tuple[str, ...]]:
    """Return the samples of tar files, and the class names.

    Args:
        shards: the files, in order.
        image: part that is the image, such as ``"png"`` (default: the only one that is an image).
        label: part that is the label, such as ``"txt"``, or the key of the label in the part ``json`` (default: guessed).
        classes: class names in the order of the labels; needed where labels are numbers.

    Raises:
        FileNotFoundError: if a file is missing.
        ValueError: if a file is not a tar file or was cut short, or a sample has no image or no label.
    """
    if missing := [shard for shard in shards if not shard.is_file()]:
        raise FileNotFoundError(
            f"load_dataset: {len(missing)} of {len(shards)} shards are missing: {quoted(map(str, missing))}"
        )
    if len(set(shards)) < len(shards):
        raise ValueError("load_dataset: a shard is listed twice; list each once")
    parts = Parts(image, label, classes is not None)
    if any(map(is_compressed, shards)):
        return read_stream(TarStream(shards, parts), classes)
    common = os.path.commonpath([shard.absolute().parent for shard in shards])
    places, paths, said = [], [], []
    for number, shard in enumerate(shards):
        name = os.path.relpath(shard.absolute(), common).replace(os.sep, "/")
        for key, member, value in _indexed(shard, parts):
            places.append((number, member.offset_data, member.size))
            paths.append(f"{name}/{key}")
            said.append(value)
    if not paths:
        raise ValueError(f"load_dataset: no samples in {quoted(map(str, shards))}")
    targets, names = class_labels("load_dataset", said, classes, paths.__getitem__)
    return TarSamples([str(shard) for shard in shards], places, paths, targets), names


def _indexed(shard: Path, parts: Parts) -> Iterator[tuple[str, tarfile.TarInfo, Any]]:
    """Yield the path, header and label of each image of a tar file. Only headers and labels are read."""
    with open_tar(shard) as tar:
        for key, found in grouped(shard, tar, lambda _, member: member):
            where = f"{shard}/{key}"
            member = found[image_part(where, found, parts)]
            yield member.name, member, label_of(where, found, parts, lambda each: content_of(tar, each))
        check_end(shard, tar.offset)
