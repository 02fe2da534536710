"""Evaluate online methods together with episodic ones: one stream per seed, with its state saved next to the rows.

Rows are written in the order of the stream. A resumed run starts from the saved state, or from the first image if there is
none. Images that have rows and are later than the state are stepped through again and compared with these rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import groupby, islice
from pathlib import Path

from tpt_lib.evaluation.run.ray_cluster import ray_shares
from tpt_lib.evaluation.run.stream_plan import OnlineCase, Stream
from tpt_lib.evaluation.run.stream_state import SavedStates, StateFile
from tpt_lib.evaluation.run.work import Work
from tpt_lib.evaluation.run_file import Header, Row, RunFile, merge_run_files

__all__ = ["stream_rows", "write_streams_on_ray"]

TOLERANCE = 1e-3  # for a probability or an entropy that is computed again, possibly on other hardware


def stream_rows(
    work: Work, run: RunFile, stream: Stream, part: Sequence[int], batch_size: int, num_workers: int
) -> Iterator[list[Row]]:
    """Yield the rows that a run does not have yet, in the order of each seed's stream.

    The caller appends them before it asks for more, since the state that is saved then is the one after them.

    Args:
        work: turns samples into rows.
        run: the run file.
        stream: what ``plan_stream`` returned; its states change.
        part: the samples of this rank.
        batch_size: number of images read together. Online methods step through them one by one.
        num_workers: number of processes that make views.

    Raises:
        ValueError: if the saved state is refused, or images give different results than in the file.
    """
    if not run.left:
        return
    file = StateFile(run.path, run.header["hash"], stream.initial)
    saved = file.read()
    online = replace(work, cases=[case for case in work.cases if isinstance(case, OnlineCase)])
    own = set(part)
    for seed in run.left:
        rows = {row["sample"]: row for row in run.rows if row["seed"] == seed}
        order = [sample for sample in stream.orders[seed] if sample in own]
        steps = _steps(order, rows, {sample for other, sample in run.failed if other == seed})
        first = next((position for position, sample in steps if sample not in rows), 0)
        known = saved if saved is not None and saved.seed == seed and saved.position <= first else None
        stream.states.update(stream.initial if known is None else known.states)
        steps = [step for step in steps if known is None or step[0] >= known.position]
        for is_done, several in groupby(steps, key=lambda step: step[1] in rows):
            positions = {sample: position for position, sample in several}
            doing = online if is_done else work
            items = doing.items(seed, list(positions), num_workers)
            while group := list(islice(items, batch_size)):
                new = doing.finish(doing.start(seed, group))
                for row in new:
                    row["position"] = positions[row["sample"]]
                if is_done:
                    _check_repeated(run, [rows[row["sample"]] for row in new], new)
                else:
                    yield new
                used = [row["position"] for row in new if "error" not in row]
                if used and file.is_due:
                    run.sync()
                    file.write(SavedStates(seed, used[-1] + 1, stream.states))
    file.remove()


def write_streams_on_ray(out: Path, header: Header, work: Work, stream: Stream, ranks: int, batch_size: int) -> None:
    """Write a run on a Ray cluster, with a worker for the stream of each rank, and merge their files.

    Args:
        out: the run file. Its folder is shared by the cluster: workers write ``OUT.rank0``, ``OUT.rank1``, … there.
        header: its header.
        work: turns samples into rows.
        stream: what ``plan_stream`` returned.
        ranks: number of streams.
        batch_size: number of images read together.
    """
    with RunFile(out, header) as run:
        if run.left:
            ray_shares(
                partial(_write_share, out.absolute(), header, work, stream, ranks, batch_size), ranks, work.device
            )
            merge_run_files([Path(f"{out}.rank{rank}") for rank in range(min(ranks, header["n"]))], out)


def _write_share(out: Path, header: Header, work: Work, stream: Stream, ranks: int, batch_size: int, rank: int) -> None:
    part = range(rank, header["n"], ranks)
    with RunFile(Path(f"{out}.rank{rank}"), header, part) as run:
        for rows in stream_rows(work, run, stream, part, batch_size, 0):
            run.append(rows)


def _steps(order: list[int], rows: dict[int, Row], failed: set[int]) -> list[tuple[int, int]]:
    """Return positions and samples to step through, up to the last one without a row.

    An image with an error is never tried again once a later image was used, since the methods continued without it.
    """
    used = [position for position, sample in enumerate(order) if "methods" in rows.get(sample, {})]
    last_used = used[-1] if used else -1
    steps = [
        (position, sample)
        for position, sample in enumerate(order)
        if "error" not in rows.get(sample, {}) and (sample not in failed or position > last_used)
    ]
    while steps and steps[-1][1] in rows:
        steps.pop()
    return steps


def _check_repeated(run: RunFile, old: list[Row], new: list[Row]) -> None:
    """Refuse images that give different results than the rows of the run."""
    for before, after in zip(old, new, strict=True):
        where = f"evaluate: sample {after['sample']} of seed {after['seed']} has a row in {str(run.path)!r}, "
        if "error" in after:
            raise ValueError(
                f"{where}but can no longer be used: {after['error']}. The state after it cannot be computed; restore the "
                "image, or pass another `out`"
            )
        for name, said in after["methods"].items():
            kept = before["methods"][name]
            if max(abs(said[key] - kept[key]) for key in ("confidence", "entropy")) > TOLERANCE:
                raise ValueError(
                    f"{where}but {name!r} now gives it {said['confidence']:.4f} instead of {kept['confidence']:.4f}. Images, "
                    "packages or hardware have changed, so the rest would not belong to these rows; pass another `out`"
                )
