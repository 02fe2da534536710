"""Run work in a thread that reports its progress and can be stopped between two reports."""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator
from concurrent.futures import Future
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import TypeVar

T = TypeVar("T")
Report = Callable[[float, str], None]
TICK = 0.25  # seconds after which progress is repeated, so that a caller can stop between two reports


class Stopped(Exception):  # noqa: N818
    """Raised in the work at its next report after it was stopped."""


@dataclass(frozen=True)
class Progress:
    """The share of the work that is done, and what is being done now."""

    done: float
    doing: str


def ignore(_done: float, _doing: str) -> None:
    """Ignore the reports of work that nobody watches."""


def run_stoppable(work: Callable[[Report], T]) -> Generator[Progress, None, T]:
    """Run ``work(report)`` in a thread and yield what it reports; closing the generator stops it at its next report.

    Args:
        work: function that calls ``report(share done, what it does)`` now and then.

    Returns:
        What the work returned, as the value of ``yield from``. Its exceptions are raised here.
    """
    reports: SimpleQueue[Progress | None] = SimpleQueue()
    stop, result = threading.Event(), Future[T]()

    def report(done: float, doing: str) -> None:
        if stop.is_set():
            raise Stopped
        reports.put(Progress(done, doing))

    def run() -> None:
        try:
            result.set_result(work(report))
        except BaseException as error:
            result.set_exception(error)
        reports.put(None)

    threading.Thread(target=run, name="work", daemon=True).start()
    now: Progress | None = Progress(0.0, "starting")
    try:
        while now is not None:
            yield now
            try:
                now = reports.get(timeout=TICK)
            except Empty:
                continue
        return result.result()
    finally:
        stop.set()
