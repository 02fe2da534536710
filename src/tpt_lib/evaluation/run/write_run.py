"""Write the rows that a run file does not have yet: in this process, in the ranks of ``torchrun``, or on a Ray cluster."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from tpt_lib.evaluation.run.checks import Backend
from tpt_lib.evaluation.run.distributed import merge_shares, share
from tpt_lib.evaluation.run.evaluate_stream import stream_rows, write_streams_on_ray
from tpt_lib.evaluation.run.progress import ProgressBar
from tpt_lib.evaluation.run.ray_cluster import ray_rows
from tpt_lib.evaluation.run.stream_plan import Stream
from tpt_lib.evaluation.run.work import Started, Work
from tpt_lib.evaluation.run_file import Header, Row, RunFile, check_resumable

__all__ = ["write_run"]


def write_run(
    out: Path,
    header: Header,
    work: Work,
    stream: Stream | None,
    *,
    backend: Backend,
    batch_size: int,
    num_workers: int,
    retry_errors: bool,
    progress: bool | None,
) -> None:
    """Write the missing rows of this rank's share of the samples, and merge the shares of all ranks into ``out``.

    Args:
        out: the run file.
        header: its header.
        work: turns samples into rows.
        stream: what ``plan_stream`` returned: None if no method is online.
        backend: where the work is done.
        batch_size: number of samples given to a method together.
        num_workers: number of processes that make views; with Ray, of actors.
        retry_errors: whether to try every sample with an error again.
        progress: whether to show a bar; None shows it only on a terminal.
    """
    if stream is not None and backend == "ray":
        write_streams_on_ray(out, header, work, stream, max(1, num_workers), batch_size)
        return
    rank, ranks = share()
    part = range(rank, header["n"], ranks)
    own, both = out, None
    if ranks > 1:
        check_resumable(out, header)
        own, both = Path(f"{out}.rank{rank}"), out if rank == 0 else None
    with (
        RunFile(own, header, part, also_lock=both, retry_errors=retry_errors) as run,
        ProgressBar(run, len(header["seeds"]) * len(part), progress) as bar,
    ):
        if stream is not None:
            missing = stream_rows(work, run, stream, part, batch_size, num_workers)
        elif backend == "ray":
            missing = ray_rows(work, _groups(run, batch_size), max(1, num_workers), work.device, work.failed)
        else:
            missing = _local_rows(work, run, batch_size, num_workers)
        for rows in missing:
            run.append(rows)
            bar.add(rows)
        if ranks > 1:
            merge_shares(out, [Path(f"{out}.rank{i}") for i in range(min(ranks, header["n"]))])


def _groups(run: RunFile, batch_size: int) -> list[tuple[int, list[int]]]:
    """Return the samples without a row in groups, each with its seed."""
    return [
        (seed, left[first : first + batch_size])
        for seed, left in run.left.items()
        for first in range(0, len(left), batch_size)
    ]


def _local_rows(work: Work, run: RunFile, batch_size: int, num_workers: int) -> Iterator[list[Row]]:
    """Yield the missing rows in order, computed in this process."""
    ahead = (
        0 if work.device.type == "cpu" else 1
    )  # groups started early: the host prepares one while the device computes
    started: deque[Started] = deque()
    for seed, left in run.left.items():
        items = work.items(seed, left, num_workers)
        while group := list(islice(items, batch_size)):
            started.append(work.start(seed, group))
            if len(started) > ahead:
                yield work.finish(started.popleft())
    yield from map(work.finish, started)
