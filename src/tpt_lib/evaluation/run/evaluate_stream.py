"""Evaluate online methods together with episodic ones: one stream per seed, with its state saved next to the rows.

Rows are written in the order of the stream. A resumed run starts from the saved state, or from the first image if there is
none. Groups of images that have rows and are later than the state are stepped through again and compared with these rows. A
group of which only some images have rows is computed as a whole.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import groupby, islice
from pathlib import Path

from tpt_lib.evaluation.run.ray_cluster import ray_shares
from tpt_lib.evaluation.run.stream_groups import Group, groups_of, steps_of
from tpt_lib.evaluation.run.stream_plan import OnlineCase, Stream
from tpt_lib.evaluation.run.stream_state import SavedStates, StateFile
from tpt_lib.evaluation.run.work import Work, needed_views
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
        batch_size: number of images read together. Online methods step through them one by one, or in one batch.
        num_workers: number of processes that make views.

    Raises:
        ValueError: if the saved state is refused, or images give different results than in the file.
    """
    if not run.left:
        return
    work = replace(work, smallest=stream.smallest)
    file = StateFile(run.path, run.header["hash"], stream.initial)
    saved = file.read()
    own = set(part)
    for seed in run.left:
        rows = {row["sample"]: row for row in run.rows if row["seed"] == seed}
        failed = {sample for other, sample in run.failed if other == seed}
        steps = steps_of([sample for sample in stream.orders[seed] if sample in own], rows, failed, stream.unit)
        first = next((position for position, sample in steps if sample not in rows), 0)
        known = saved if saved is not None and saved.seed == seed and saved.position <= first else None
        stream.states.update(stream.initial if known is None else known.states)
        groups = groups_of(steps, rows, 0 if known is None else known.position, batch_size)
        for group, new in _computed(work, seed, groups, num_workers):
            _check_repeated(run, rows, new, list(stream.initial))
            if missing := [row for row in new if row["sample"] not in rows]:
                yield _written_order(missing, stream.unit)
            if file.is_due and _is_settled(new, stream.unit):
                run.sync()
                file.write(SavedStates(seed, group.end, stream.states))
    file.remove()


def _computed(work: Work, seed: int, groups: Sequence[Group], num_workers: int) -> Iterator[tuple[Group, list[Row]]]:
    """Yield each group with its rows. Only the online methods run on a group that is done."""
    cases = [case for case in work.cases if isinstance(case, OnlineCase)]
    online = replace(work, cases=cases, views=needed_views(cases, work.views))
    for is_done, several in groupby(groups, key=lambda group: group.is_done):
        doing, chosen = online if is_done else work, list(several)
        items = doing.items(seed, [sample for group in chosen for sample in group.positions], num_workers)
        for group in chosen:
            rows = doing.finish(doing.start(seed, list(islice(items, len(group.positions)))))
            for row in rows:
                row["position"] = group.positions[row["sample"]]
            yield group, rows


def _written_order(rows: list[Row], unit: int) -> list[Row]:
    """Return the rows of a group as they are written. If images are learned from together, errors come first, so that a kill
    never leaves a result without the errors of its batch, which then is the same when it is computed again."""
    return sorted(rows, key=lambda row: "error" not in row) if unit > 1 else rows


def _is_settled(rows: list[Row], unit: int) -> bool:
    """Return whether no image of a group will be tried again, so that the state after it can be saved."""
    used = ["error" not in row for row in rows]
    return any(used) and (unit > 1 or used[-1])


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


def _check_repeated(run: RunFile, rows: Mapping[int, Row], new: list[Row], names: Sequence[str]) -> None:
    """Refuse images to which the methods of these names give different results than in the rows of the run."""
    for after in new:
        before = rows.get(after["sample"])
        if before is None:
            continue
        where = f"evaluate: sample {after['sample']} of seed {after['seed']} has a row in {str(run.path)!r}, "
        if "error" in after:
            raise ValueError(
                f"{where}but can no longer be used: {after['error']}. The state after it cannot be computed; restore the "
                "image, or pass another `out`"
            )
        for name in names:
            said, kept = after["methods"][name], before["methods"][name]
            if max(abs(said[key] - kept[key]) for key in ("confidence", "entropy")) > TOLERANCE:
                raise ValueError(
                    f"{where}but {name!r} now gives it {said['confidence']:.4f} instead of {kept['confidence']:.4f}. Images, "
                    "packages or hardware have changed, so the rest would not belong to these rows; pass another `out`"
                )
