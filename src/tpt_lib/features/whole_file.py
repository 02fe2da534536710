"""Files of tensors that are written whole or not at all, and read by memory map."""

from __future__ import annotations

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
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, "pt") as file:
            notes = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in names or file.keys()}
    except SafetensorError as error:
        raise DamagedFileError(f"{str(path)!r} is damaged: {error}") from error
    if "checksum" not in notes:
        raise DamagedFileError(f"{str(path)!r} is damaged, or was not written by tpt_lib: it has no checksum")
    return tensors, notes


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
