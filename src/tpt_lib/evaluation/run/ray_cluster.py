"""Share one evaluation among the actors of a Ray cluster, and replace those that die."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

import torch

__all__ = ["ray_rows", "ray_shares", "require_ray"]

TRIES = 3  # of a sample whose actor dies

DIED = f"ActorDied: the Ray actor died {TRIES} times while it had this sample; Ray's logs have the reason"

AnyRow = TypeVar("AnyRow", bound=Mapping[str, Any])  # the result for a sample, whose index is under "sample"


def require_ray() -> Any:
    """Return the ``ray`` module, or raise an ImportError that says what to install."""
    try:
        import ray
    except ImportError as error:
        raise ImportError('backend="ray" needs Ray: pip install "tpt_lib[ray]"') from error
    return ray


def ray_rows(
    work: Callable[[int, list[int]], list[AnyRow]],
    groups: Sequence[tuple[int, list[int]]],
    actors: int,
    device: torch.device,
    failed: Callable[[int, int, str], AnyRow],
) -> Iterator[list[AnyRow]]:
    """Yield the rows of each group in order, computed by actors.

    An actor that dies is replaced, and the samples of its group are tried again one by one. A sample whose actor died
    ``TRIES`` times becomes an error row.

    Args:
        work: function from a seed and a list of samples to their rows.
        groups: a seed and a list of samples for each call.
        actors: number of actors.
        device: the model's device; on CUDA each actor gets a GPU.
        failed: function from a seed, a sample and an error to the sample's row.

    Returns:
        An iterator over the rows of each group.

    Raises:
        RuntimeError: if actors die before they are given a sample.
    """
    waiting = deque(_Task(i, seed, samples) for i, (seed, samples) in enumerate(groups))
    found: list[dict[Any, AnyRow]] = [{} for _ in groups]
    complete = 0
    with _Pool(work, min(actors, len(groups)), device) as pool:
        while complete < len(groups):
            pool.give(waiting)
            for task, rows in pool.take():
                if rows is None and task.tries < TRIES:
                    waiting.extendleft(task.one_by_one())
                    continue
                rows = [failed(task.seed, one, DIED) for one in task.samples] if rows is None else rows
                found[task.group].update({row["sample"]: row for row in rows})
            while complete < len(groups) and len(found[complete]) == len(groups[complete][1]):
                yield [found[complete][sample] for sample in groups[complete][1]]
                complete += 1


def ray_shares(write: Callable[[int], None], ranks: int, device: torch.device) -> None:
    """Call ``write(rank)`` for each rank on a Ray cluster. A call whose worker dies is made again, ``TRIES`` times in total.

    Args:
        write: function that writes the share of a rank, or resumes it.
        ranks: number of ranks.
        device: the model's device; on CUDA each call gets a GPU.

    Raises:
        RuntimeError: if the workers of a rank died each time.
    """
    ray = _initialized_ray()
    stored = ray.put(write)
    remote = ray.remote(num_gpus=int(device.type == "cuda"), max_retries=TRIES - 1)(_call)
    left = [remote.remote(stored, rank) for rank in range(ranks)]
    try:
        while left:
            ready, left = ray.wait(left, timeout=1)  # not longer, so that signals are handled
            ray.get(ready)
    except (ray.exceptions.WorkerCrashedError, ray.exceptions.OutOfMemoryError) as error:
        raise RuntimeError(
            f"evaluate: the Ray worker of a stream died {TRIES} times; Ray's logs have the reason. The same call resumes it"
        ) from error
    finally:
        for reference in left:
            ray.cancel(reference, force=True)


def _call(write: Callable[[int], None], rank: int) -> None:
    write(rank)


def _initialized_ray() -> Any:
    ray = require_ray()
    if not ray.is_initialized():
        ray.init()
    return ray


class _Task(NamedTuple):
    group: int
    seed: int
    samples: list[int]
    tries: int = 1

    def one_by_one(self) -> Iterator[_Task]:
        """Return a task for each sample, last one first."""
        return (self._replace(samples=[one], tries=self.tries + 1) for one in reversed(self.samples))


class _Pool(Generic[AnyRow]):
    """Ray actors, each with at most one task. Use it as a context manager."""

    def __init__(self, work: Callable[[int, list[int]], list[AnyRow]], actors: int, device: torch.device) -> None:
        self.ray = _initialized_ray()
        self.remote: Any = self.ray.remote(num_gpus=int(device.type == "cuda"))(_Actor)
        self.work = self.ray.put(work)
        self.idle: list[Any] = []
        self.running: dict[Any, tuple[Any, _Task | None]] = {}
        self.failed_starts = 0
        for _ in range(actors):
            self._start()

    def _start(self) -> None:
        actor = self.remote.remote(self.work)
        self.running[actor.start.remote()] = actor, None

    def give(self, waiting: deque[_Task]) -> None:
        """Give each idle actor a task."""
        while self.idle and waiting:
            actor, task = self.idle.pop(), waiting.popleft()
            self.running[actor.rows.remote(task.seed, task.samples)] = actor, task

    def take(self) -> Iterator[tuple[_Task, list[AnyRow] | None]]:
        """Wait, and yield tasks that ended with their rows, None if the actor died."""
        errors = self.ray.exceptions
        ready, _ = self.ray.wait(list(self.running), timeout=1)  # not longer, so that signals are handled
        for reference in ready:
            actor, task = self.running.pop(reference)
            rows = None
            try:
                rows = self.ray.get(reference)
                self.idle.append(actor)
                self.failed_starts = 0
            except (errors.RayActorError, errors.WorkerCrashedError, errors.OutOfMemoryError) as error:
                self.failed_starts += task is None
                if self.failed_starts == TRIES:
                    raise RuntimeError(f"evaluate: Ray actors die before they are given a sample: {error}") from error
                self._start()
            if task is not None:
                yield task, rows

    def __enter__(self) -> _Pool[AnyRow]:
        return self

    def __exit__(self, *_: object) -> None:
        for actor in [*self.idle, *(actor for actor, _ in self.running.values())]:
            self.ray.kill(actor)


class _Actor:
    def __init__(self, work: Callable[[int, list[int]], list[Any]]) -> None:
        self.work = work

    def start(self) -> None:
        pass

    def rows(self, seed: int, samples: list[int]) -> list[Any]:
        return self.work(seed, samples)
