"""Spread one evaluation over several processes: the ranks of a ``torchrun`` job, or the actors of a Ray cluster."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch

from tpt_lib.evaluation.run_file import Row, merge_run_files

__all__ = ["merge_shares", "ray_rows", "share"]

PATIENCE = timedelta(days=7)  # how long ranks wait for the slowest


def share() -> tuple[int, int]:
    """Return this process's rank and the number of ranks that ``torchrun`` started; (0, 1) without it."""
    return int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))


def merge_shares(out: Path, shares: list[Path]) -> None:
    """Wait for all ranks, then merge their files into ``out`` on rank 0."""
    import torch.distributed as dist

    started = dist.is_initialized()
    if not started:
        dist.init_process_group("gloo", timeout=PATIENCE)
    dist.barrier()
    if dist.get_rank() == 0:
        merge_run_files(shares, out)
    dist.barrier()
    if not started:
        dist.destroy_process_group()


def ray_rows(
    work: Callable[[int, list[int]], list[Row]],
    groups: Iterable[tuple[int, list[int]]],
    actors: int,
    device: torch.device,
) -> Iterator[list[Row]]:
    """Yield the rows of each group in order, computed by actors.

    An actor that dies is restarted, and its group is repeated.

    Args:
        work: function from a seed and a list of samples to their rows.
        groups: a seed and a list of samples for each call.
        actors: number of actors.
        device: the model's device; on CUDA each actor gets a GPU.

    Returns:
        An iterator over the rows of each group.
    """
    try:
        import ray
        from ray.util import ActorPool
    except ImportError as error:
        raise ImportError('backend="ray" needs Ray: pip install "tpt_lib[ray]"') from error

    if not ray.is_initialized():
        ray.init()
    remote: Any = ray.remote(max_restarts=-1, max_task_retries=-1, num_gpus=int(device.type == "cuda"))(_Actor)
    shared = ray.put(work)
    pool: Any = ActorPool([remote.remote(shared) for _ in range(actors)])
    yield from pool.map(lambda actor, group: actor.rows.remote(*group), groups)


class _Actor:
    def __init__(self, work: Callable[[int, list[int]], list[Row]]) -> None:
        self.work = work

    def rows(self, seed: int, samples: list[int]) -> list[Row]:
        return self.work(seed, samples)
