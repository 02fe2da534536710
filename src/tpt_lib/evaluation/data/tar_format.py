"""Read tar files in the layout of webdataset: ``key.jpg`` is an image and ``key.cls`` its label.

Convention:
    - The key of a file is its path up to the first dot of its name; the rest is its part. Consecutive files with the same
      key are one sample.
    - The label is the part ``cls``, or a value of the part ``json``. The part ``txt``, often a caption, is the label if
      ``label="txt"`` or ``classes`` are given.
"""

from __future__ import annotations

import bz2
import gzip
import json
import lzma
import os
import tarfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from tpt_lib.evaluation.data.columns import choose_column
from tpt_lib.evaluation.data.folders import quoted

__all__ = [
    "Parts",
    "check_end",
    "content_of",
    "grouped",
    "image_part",
    "is_compressed",
    "is_tar",
    "label_of",
    "open_tar",
]

COMPRESSED: Mapping[str, Callable[[Path], Any]] = {
    ".tar.gz": gzip.open,
    ".tgz": gzip.open,
    ".tar.bz2": bz2.open,
    ".tar.xz": lzma.open,
}
IMAGES = ("jpg", "jpeg", "png", "webp", "bmp", "ppm", "pgm", "pbm", "pnm", "tif", "tiff", "gif")
BROKEN = (tarfile.TarError, EOFError, OSError, zlib.error, lzma.LZMAError)


class Parts(NamedTuple):
    """Which parts of a sample are its image and its label, None to guess, and whether class names are given."""

    image: str | None
    label: str | None
    named: bool


def is_tar(path: object) -> bool:
    """Return whether this is the name of a tar file.

    >>> is_tar("shards-{000..009}.tar"), is_tar("photos.csv")
    (True, False)
    """
    return isinstance(path, str | os.PathLike) and os.fspath(path).lower().endswith((".tar", *COMPRESSED))


def is_compressed(path: Path) -> bool:
    """Return whether the name of a tar file is that of a compressed one."""
    return path.name.lower().endswith(tuple(COMPRESSED))


def open_tar(shard: Path) -> tarfile.TarFile:
    """Open a tar file; a compressed one as a stream, which can only be read forward."""
    try:
        for suffix, open_file in COMPRESSED.items():
            if shard.name.lower().endswith(suffix):
                return tarfile.open(fileobj=open_file(shard), mode="r|")
        return tarfile.open(shard, "r:")
    except BROKEN as error:
        what = "is empty" if not shard.stat().st_size else f"is not a tar file, or has another compression: {error}"
        raise ValueError(f"load_dataset: {str(shard)!r} {what}. Copy it again") from error


def grouped(
    shard: Path, tar: tarfile.TarFile, read: Callable[[tarfile.TarFile, tarfile.TarInfo], Any]
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the key and the parts of each sample."""
    seen: set[str] = set()
    last = ""
    found: dict[str, Any] = {}
    try:
        for member in tar:
            folder, name = os.path.split(member.name)
            if not member.isfile() or name.startswith((".", "__")):
                continue
            stem, _, part = name.partition(".")
            key = f"{folder}/{stem}".lstrip("/")
            if key != last:
                if found:
                    yield last, found
                if key in seen:
                    raise ValueError(f"load_dataset: {str(shard)!r} has the sample {key!r} twice; write it once")
                seen.add(key)
                last, found = key, {}
            if part.lower() in found:
                raise ValueError(f"load_dataset: {str(shard)!r} has the file {member.name!r} twice; write it once")
            found[part.lower()] = read(tar, member)
    except BROKEN as error:
        raise ValueError(
            f"load_dataset: {str(shard)!r} is damaged or was cut short, after {len(seen)} samples, the last {last!r}: "
            f"{type(error).__name__}: {error}. Copy it again"
        ) from error
    if found:
        yield last, found


def check_end(shard: Path, offset: int) -> None:
    """Refuse a tar file without an end mark, which was cut short, and one with more files after it."""
    with shard.open("rb") as file:
        file.seek(offset)
        rest = file.read()
    if len(rest) < tarfile.BLOCKSIZE:
        raise ValueError(f"load_dataset: {str(shard)!r} was cut short: it has no end mark. Copy it again")
    if rest.strip(b"\0"):
        raise ValueError(
            f"load_dataset: {str(shard)!r} has more files after its end mark, as if several tar files were joined; pass them "
            "separately"
        )


def content_of(tar: tarfile.TarFile, member: tarfile.TarInfo) -> bytes:
    """Return the bytes of a file in a tar file."""
    file = tar.extractfile(member)
    data = b"" if file is None else file.read()
    if len(data) < member.size:
        raise tarfile.ReadError(f"{member.name} has {len(data)} of {member.size} bytes")
    return data


def image_part(where: str, found: Mapping[str, Any], parts: Parts) -> str:
    """Return which part of a sample is the image."""
    fitting = [part for part in found if (part in IMAGES if parts.image is None else part == parts.image.lower())]
    if len(fitting) != 1:
        what = "no image" if not fitting else f"{len(fitting)} images"
        raise ValueError(
            f"load_dataset: {where} has {what}; its parts are {quoted(found, 20)}. Pass image='…', the part that is the image"
        )
    return fitting[0]


def label_of(where: str, found: Mapping[str, Any], parts: Parts, content: Callable[[Any], bytes]) -> Any:
    """Return the label of a sample, a name or a number, from the part that has it."""
    named = parts.label
    if named is None:
        named = next((part for part in ("cls", *(["txt"] if parts.named else [])) if part in found), None)
    try:
        if named is not None and named in found and named != "json":
            return content(found[named]).decode().strip()
        if "json" in found:
            values = json.loads(content(found["json"]))
            if not isinstance(values, dict):
                raise ValueError("its json is not an object")
            return values[choose_column("its json", [*values], "label", named)]
    except (UnicodeDecodeError, ValueError) as error:
        raise ValueError(f"load_dataset: the label of {where} cannot be read: {error}") from error
    raise ValueError(
        f"load_dataset: {where} has no label; its parts are {quoted(found, 20)}. Pass label='…', the part that is the label, "
        "or its key in the part json" + (", and classes=[…]" if "txt" in found else "")
    )
