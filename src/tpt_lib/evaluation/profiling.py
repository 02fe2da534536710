"""Measure the seconds and the memory of a call."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import torch

__all__ = ["Cost", "measured"]

T = TypeVar("T")


@dataclass(frozen=True)
class Cost:
    """Cost of a call.

    Attributes:
        seconds: wall-clock time.
        memory: peak memory above what was held before, in megabytes; None where the system does not report it.
    """

    seconds: float
    memory: float | None


def measured(call: Callable[[], T], device: torch.device) -> tuple[T, Cost]:
    """Return the result of a call and its cost.

    Args:
        call: a function without arguments.
        device: whose memory is measured: for CUDA the allocator's, otherwise the process's, which only Linux reports.

    Returns:
        The result and its ``Cost``.

    >>> result, cost = measured(lambda: 1 + 1, torch.device("cpu"))
    >>> result, cost.seconds > 0
    (2, True)
    """
    held = _reset_peak(device)
    start = time.perf_counter()
    result = call()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    seconds = time.perf_counter() - start
    peak = _peak(device)
    return result, Cost(seconds, None if held is None or peak is None else max(0.0, peak - held))


def _reset_peak(device: torch.device) -> float | None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
        torch.cuda.reset_peak_memory_stats(device)
        return torch.cuda.memory_allocated(device) / 2**20
    try:
        ctypes.CDLL(None).malloc_trim(0)  # returns freed memory, so that it does not count as held
        Path("/proc/self/clear_refs").write_text("5")  # resets the peak
    except (OSError, AttributeError, TypeError):
        return None
    return _status("VmRSS")


def _peak(device: torch.device) -> float | None:
    return torch.cuda.max_memory_allocated(device) / 2**20 if device.type == "cuda" else _status("VmHWM")


def _status(name: str) -> float | None:
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) / 1024 for line in lines if line.startswith(f"{name}:")), None)
