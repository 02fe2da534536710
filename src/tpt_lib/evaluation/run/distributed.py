"""Share one evaluation among the ranks of a ``torchrun`` job."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

from tpt_lib.evaluation.run_file import merge_run_files

__all__ = ["after_all_ranks", "merge_shares", "share"]

PATIENCE = timedelta(days=7)  # how long ranks wait for the slowest


def share() -> tuple[int, int]:
    """Return this process's rank and the number of ranks that ``torchrun`` started; (0, 1) without it."""
    return int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))


def merge_shares(out: Path, shares: list[Path]) -> None:
    """Wait for all ranks, then merge their files into ``out`` on rank 0."""
    with after_all_ranks() as rank:
        if rank == 0:
            merge_run_files(shares, out)


@contextmanager
def after_all_ranks() -> Iterator[int]:
    """Wait for all ranks, yield this process's rank, and wait for all again at the end."""
    import torch.distributed as dist

    if share()[1] == 1:
        yield 0
        return
    started = dist.is_initialized()
    if not started:
        dist.init_process_group("gloo", timeout=PATIENCE)
    dist.barrier()
    yield dist.get_rank()
    dist.barrier()
    if not started:
        dist.destroy_process_group()
