"""Files of tensors that are written whole or not at all, and read by memory map."""

from __future__ import annotations

import json
import math
import mmap
import os
import socket
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

__all__ = [
    "DamagedFileError",
    "check_tensors",
    "join_texts",
    "map_tensors",
    "remove_parts",
    "text_at",
    "write_tensors",
    "write_whole",
]


DTYPES = {
    "BOOL": torch.bool, "U8": torch.uint8, "I32": torch.int32, "I64": torch.int64,
    "F16": torch.float16, "BF16": torch.bfloat16, "F32": torch.float32, "F64": torch.float64,
}  # fmt: skip


class DamagedFileError(ValueError):
    """Raised for a file that was cut short or changed after it was written."""


def write_whole(path: Path, content: bytes) -> None:
    """Write a file under another name, and rename it when the disk has all of it. A kill leaves the old file, or the new."""
    part = path.with_name(f"{path.name}.part-{socket.gethostname()}-{os.getpid()}")
    try:
        with part.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise


def remove_parts(folder: Path) -> None:
    """Remove what processes of this machine that were killed left of files that they were writing."""
    for part in folder.rglob(f"*.part-{socket.gethostname()}-*"):
        pid = part.name.rpartition("-")[2]
        if pid.isdecimal() and not _is_running(int(pid)):
            part.unlink(missing_ok=True)


def _is_running(pid: int) -> bool:
    if os.name == "nt":  # where signal 0 is Ctrl-C
        return True
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:  # another user's
        return True
    return True


def write_tensors(path: Path, tensors: Mapping[str, Tensor], notes: Mapping[str, str]) -> None:
    """Write tensors and notes as a safetensors file with a checksum of both."""
    from safetensors.torch import save

    whole = {name: tensor.contiguous() for name, tensor in tensors.items()}
    write_whole(path, save(whole, {**notes, "checksum": _checksum(whole, notes)}))


def map_tensors(path: Path, *names: str) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Return the tensors and notes of a file that ``write_tensors`` wrote; only the tensors of these names if any are given.

    The file is mapped into memory: only what is used of a tensor is read. Writing to a tensor does not change the file.

    Raises:
        DamagedFileError: if it is cut short, no such file, or lacks a name. Other damage is found by ``check_tensors``.
    """
    try:
        with path.open("rb", buffering=0) as file:
            mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
        size, start = len(mapped), 8 + int.from_bytes(mapped[:8], "little")
        header = json.loads(mapped[8:start])
        notes = header.pop("__metadata__", {})
        if (end := start + max(entry["data_offsets"][1] for entry in header.values())) != size:
            raise ValueError(f"it has {size} bytes, but its header describes {end}")
        tensors = {name: _mapped(mapped, start, **header[name]) for name in names or header}
    except (ValueError, KeyError, TypeError, AttributeError, IndexError) as error:
        raise DamagedFileError(f"{str(path)!r} is damaged: it is not a whole safetensors file ({error})") from error
    if "checksum" not in notes:
        raise DamagedFileError(f"{str(path)!r} is damaged, or was not written by tpt_lib: it has no checksum")
    return tensors, notes


def _mapped(mapped: mmap.mmap, start: int, *, dtype: str, shape: list[int], data_offsets: list[int]) -> Tensor:
    """Return a tensor of a mapped file, whose header describes it. safetensors does the same more slowly."""
    first, end = data_offsets
    kind = DTYPES[dtype]
    count = math.prod(shape)
    if end - first != count * kind.itemsize:
        raise ValueError(f"{end - first} bytes for a tensor of {count} x {kind}")
    if not count:
        return torch.empty(shape, dtype=kind)
    return torch.frombuffer(mapped, dtype=kind, offset=start + first, count=count).reshape(shape)


def check_tensors(path: Path) -> dict[str, str]:
    """Read all of a file that ``write_tensors`` wrote and return its notes.

    Raises:
        DamagedFileError: if its content does not have the checksum it was written with; the message has both.
    """
    tensors, notes = map_tensors(path)
    there, found = notes["checksum"], _checksum(tensors, {k: v for k, v in notes.items() if k != "checksum"})
    if there != found:
        raise DamagedFileError(
            f"{str(path)!r} is damaged: its checksum is {found}, but was {there} when it was written"
        )
    return notes


def join_texts(texts: list[str]) -> tuple[Tensor, Tensor]:
    """Return texts as bytes and the end of each, two tensors that can be mapped."""
    encoded = [text.encode("utf-8", "surrogateescape") for text in texts]
    ends = torch.tensor([len(each) for each in encoded], dtype=torch.int64).cumsum(0)
    return torch.frombuffer(bytearray(b"".join(encoded) or b"\0"), dtype=torch.uint8), ends


def text_at(joined: Tensor, ends: Tensor, index: int) -> str:
    """Return one of the texts that ``join_texts`` joined."""
    first = int(ends[index - 1]) if index else 0
    return bytes(joined[first : int(ends[index])].tolist()).decode("utf-8", "surrogateescape")


def _checksum(tensors: Mapping[str, Tensor], notes: Mapping[str, str]) -> str:
    found = zlib.crc32(repr(sorted(notes.items())).encode())
    for name in sorted(tensors):
        tensor = tensors[name]
        found = zlib.crc32(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode(), found)
        found = zlib.crc32(_bytes(tensor), found)
    return f"{found:08x}"


def _bytes(tensor: Tensor) -> Any:
    return tensor.reshape(-1).view(torch.uint8).numpy()
