"""Time the parts of work that an accelerator may still be running."""

from __future__ import annotations

import time
from typing import Any

import torch

__all__ = ["Clock"]


class Clock:
    """The seconds between marks, the first of which is ``"views"``.

    Convention: CUDA times its own work between marks. For other accelerators the seconds are those that the host took to start
    the work.
    """

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.marks: list[tuple[str, Any]] = []
        self.mark("views")

    def mark(self, name: str) -> None:
        """Begin a part; an empty name ends the last one."""
        if self.device.type != "cuda":
            self.marks.append((name, time.perf_counter()))
            return
        event = torch.cuda.Event(enable_timing=True)
        event.record(torch.cuda.current_stream(self.device))
        self.marks.append((name, event))

    def seconds(self) -> dict[str, float]:
        """Return the seconds of each part. Call it after the device has finished."""
        pairs = zip(self.marks, self.marks[1:], strict=False)
        if self.device.type == "cuda":
            return {name: start.elapsed_time(end) / 1000 for (name, start), (_, end) in pairs}
        return {name: end - start for (name, start), (_, end) in pairs}
