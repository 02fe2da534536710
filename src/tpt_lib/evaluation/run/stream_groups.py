"""Divide a stream into groups of images that are computed together, the same ones after a kill as without it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from itertools import groupby
from typing import NamedTuple

from tpt_lib.evaluation.run_schema import Row

__all__ = ["Group", "groups_of", "steps_of"]

Steps = list[tuple[int, int]]  # positions and samples


class Group(NamedTuple):
    """Images that are computed together.

    Attributes:
        positions: the position of each sample.
        end: the position at which the next group begins.
        is_done: whether all samples have a row.
    """

    positions: dict[int, int]
    end: int
    is_done: bool


def steps_of(order: Sequence[int], rows: Mapping[int, Row], failed: Set[int], unit: int) -> Steps:
    """Return the positions and samples of a stream, without the images that are left out for good.

    An image with an error is never tried again once a later image, or another one of its batch, was used, since the methods
    continued without it.

    Args:
        order: the samples in their order.
        rows: the rows that the run has, by sample.
        failed: samples with an error that may be tried again.
        unit: number of images that the methods learn from together.
    """
    used = [position for position, sample in enumerate(order) if "methods" in rows.get(sample, {})]
    last_used = used[-1] if used else -1
    return [
        (position, sample)
        for position, sample in enumerate(order)
        if "error" not in rows.get(sample, {}) and (sample not in failed or position - position % unit > last_used)
    ]


def groups_of(steps: Steps, rows: Mapping[int, Row], start: int, size: int) -> list[Group]:
    """Return the groups of ``size`` positions, counted from ``start``, up to the last one with a sample that has no row.

    Args:
        steps: what ``steps_of`` returned. A group lacks the samples that are left out.
        rows: the rows that the run has, by sample.
        start: the first position.
        size: number of positions in a group.
    """
    left = [(position, sample) for position, sample in steps if position >= start]
    groups = []
    for number, several in groupby(left, key=lambda step: (step[0] - start) // size):
        positions = {sample: position for position, sample in several}
        groups.append(Group(positions, start + (number + 1) * size, all(sample in rows for sample in positions)))
    while groups and groups[-1].is_done:
        groups.pop()
    return groups
