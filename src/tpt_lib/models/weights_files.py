"""Check a weights file before it is loaded: that it is complete and holds as many bytes as its tensors claim."""

from __future__ import annotations

import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

__all__ = ["check_claims", "check_weights", "damage", "weights_in"]

POINTER = b"version https://git-lfs"


def weights_in(folder: Path) -> list[Path]:
    """Return the files that a folder's weights are read from: safetensors if there are any, else what ``torch.save`` wrote."""
    return sorted(folder.glob("*model*.safetensors")) or sorted(folder.glob("*model*.bin")) + sorted(
        folder.glob("*model*.pth")
    )


def check_weights(caller: str, path: Path) -> None:
    """Refuse a weights file that cannot be read, or whose tensors claim more than it holds. Reads no weights.

    Args:
        caller: the function to name in errors.
        path: safetensors, or what ``torch.save`` wrote. Other formats are left to their readers.

    Raises:
        ValueError: if the file is damaged, could run code, or claims more than it holds.
    """
    if path.suffix in (".npy", ".npz"):
        return
    check_claims(caller, path)
    try:
        if path.suffix == ".safetensors":
            from safetensors import safe_open

            with safe_open(path, "pt"):  # compares the header with the size of the file
                return
        loaded = torch.load(path, map_location="cpu", weights_only=True, mmap=zipfile.is_zipfile(path))
    except Exception as error:  # readers raise errors of any type on a broken file
        raise ValueError(f"{caller}: the weights {str(path)!r} cannot be read: {damage(path, error)}") from error
    check_claims(caller, path, loaded)


def check_claims(caller: str, path: Path, loaded: Any = None) -> None:
    """Refuse a file that would take far more memory than its own size: compressed, or with tensors expanded from a few values.

    Args:
        caller: the function to name in errors.
        path: the file.
        loaded: the loaded content, in which expanded tensors take no memory yet (default None: not loaded).

    Raises:
        ValueError: if the file or one of its tensors claims more than it holds.
    """
    size = path.stat().st_size
    if loaded is None and zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            if (claimed := sum(one.file_size for one in archive.infolist())) > 2 * size:
                raise ValueError(
                    f"{caller}: {str(path)!r} has {size:,} bytes, but unpacks to {claimed:,}; torch.save does not compress, so "
                    "this file was made by something else. Get it from a source you trust"
                )
    for name, tensor in _tensors("", loaded):
        claimed, held = tensor.numel() * tensor.element_size(), tensor.untyped_storage().nbytes()
        if claimed > size and claimed > held:
            raise ValueError(
                f"{caller}: in {str(path)!r} the tensor {name!r} of shape {tuple(tensor.shape)} claims {claimed:,} bytes, but "
                f"the file holds {held:,} for it; if the file is yours, save the tensor with .clone()"
            )


def damage(path: Path, error: Exception) -> str:
    """Return what is wrong with a weights file that a reader failed on, and what to do."""
    with path.open("rb") as file:
        start = file.read(64)
    if not start:
        return "the file is empty. Download or save it again"
    if start.startswith(POINTER):
        return "it is a Git LFS pointer, not the weights. Get them with 'git lfs pull'"
    if "TorchScript" in str(error):
        return (
            "it is a TorchScript archive. Save its state dict: torch.save(torch.jit.load(path).state_dict(), new_path)"
        )
    if len(start) > 8 and start.isascii() and start.decode().isprintable():
        return f"it is a text file that begins with {start[:24].decode()!r}. Download the weights again"
    return (
        "it is cut short or broken, or holds objects that could run code. Download or save it again, as safetensors or as a "
        f"state dict of tensors ({type(error).__name__})"
    )


def _tensors(name: str, value: Any) -> Iterator[tuple[str, Tensor]]:
    if isinstance(value, Tensor):
        yield name, value
    elif isinstance(value, dict | list | tuple):
        for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
            yield from _tensors(f"{name}.{key}".lstrip("."), inner)
