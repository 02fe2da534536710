"""Choose how views are made: view by view on a CPU, in few batched operations on an accelerator."""

from __future__ import annotations

import contextlib
import functools
import warnings
from collections.abc import Callable

import torch
from torch import Tensor


def fill(out: Tensor, plain: Callable[..., None], batched: Callable[..., None], image: Tensor, *rest: object) -> Tensor:
    """Write to ``out``, on the device of both tensors, with the version that suits the device.

    A CPU runs ``plain(out, image, *rest)``, which keeps what it works on in the cache. An accelerator runs ``batched`` in full
    precision, whatever autocast says. If it lacks an operation, the CPU runs ``plain`` and the result is copied.

    Args:
        out: tensor to fill.
        plain: version for a CPU.
        batched: version for an accelerator, in a fixed number of operations and without waiting for the device.
        image: pixels that both read.
        *rest: further arguments of both, on the CPU.

    Returns:
        ``out``.
    """
    device = out.device.type
    if device == "cpu":
        plain(out, image, *rest)
        return out
    try:
        with _full_precision(device):
            batched(out, image, *rest)
    except NotImplementedError as error:
        _warn_once(device, str(error).partition("\n")[0])
        host = torch.empty_like(out, device="cpu")
        plain(host, image.cpu(), *rest)
        out.copy_(host)
    return out


def upload(x: Tensor, device: torch.device) -> Tensor:
    """Copy a tensor from the CPU to a device. For CUDA, the memory is pinned, so that the copy waits for no earlier work."""
    if device.type != "cuda":
        return x.to(device)
    return x.pin_memory().to(device, non_blocking=True)


def _full_precision(device: str) -> contextlib.AbstractContextManager[object]:
    if torch.amp.is_autocast_available(device):
        return torch.autocast(device, enabled=False)
    return contextlib.nullcontext()


@functools.cache
def _warn_once(device: str, problem: str) -> None:
    warnings.warn(
        f"views are made on the CPU and copied, because the device {device!r} lacks an operation: {problem}",
        stacklevel=2,
    )
