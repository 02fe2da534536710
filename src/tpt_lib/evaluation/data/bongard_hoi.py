"""Bongard-HOI: problems of image paths, with a choice of supports and queries that never changes."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from torch.utils.data import Dataset

from tpt_lib.evaluation.data.folders import shown
from tpt_lib.evaluation.data.registry import SPLITS_OF_BONGARD, Entry, places
from tpt_lib.evaluation.data.split_files import first_with, missing_files

__all__ = ["Problem", "Problems", "read_problems"]

IMAGES = 7  # on each side of a problem: six supports and a query

FILES_IN = ("", "bongard_hoi_release", "cache", "cache/bongard_hoi_release", "bongard_splits", "data/bongard_splits")

OTHER_HALF = {"train": "val", "val": "train"}


class Problem(NamedTuple):
    """One Bongard problem: ``bongard_tpt(model, *problem[:3])`` solves it.

    Attributes:
        positives: six images, of Bongard-HOI their paths, that show the concept.
        negatives: six images that do not.
        queries: the images to judge, one of each side.
        truths: which side each query is of, ``"positive"`` or ``"negative"``.
    """

    positives: tuple[Any, ...]
    negatives: tuple[Any, ...]
    queries: tuple[Any, ...]
    truths: tuple[str, ...]


class Problems(Dataset[Problem]):
    """A dataset of problems."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        self.problems = tuple(problems)

    def __len__(self) -> int:
        return len(self.problems)

    def __getitem__(self, index: int) -> Problem:
        return self.problems[index]


def read_problems(entry: Entry, root: Path, split: str, *, subset: bool, seed: int) -> tuple[Problems, str]:
    """The problems of a split and its name in the paper's order of words, action before object."""
    split = _split(entry, split)
    file, inside = _file(entry, root, split)
    problems = json.loads(file.read_text(encoding="utf-8"))
    sides = [_sides(entry, file, number, problem) for number, problem in enumerate(problems)]
    if not sides:
        raise ValueError(f"{entry.name}: {file} holds no problems. Download it again")
    folder = first_with(entry.name, (place / images for place in inside for images in entry.images), sides[0][0][0])
    at = _located(folder, {path for pair in sides for side in pair for path in side})
    whole = [pair for pair in sides if all(path in at for side in pair for path in side)]
    if len(whole) < len(sides) and not subset:
        gone = sorted({path for pair in sides for side in pair for path in side} - set(at))
        raise FileNotFoundError(
            f"{entry.name}: {len(gone)} images of {len(sides) - len(whole)} of {len(sides)} problems are not in {folder}: "
            f"{shown(gone)}. Download the rest, or pass subset=True to leave these problems out"
        )
    return Problems([_choose(pair, at, seed) for pair in whole]), split


def _split(entry: Entry, split: str) -> str:
    """The split by the paper's name; the files say the object before the action."""
    words = split.removeprefix("test_").split("_")
    turned = "_".join([*words[2:], *words[:2]])
    found = next((name for name in ("_".join(words), turned) if name in SPLITS_OF_BONGARD), None)
    if found is None:
        raise ValueError(f"{entry.name}: split must be one of {', '.join(SPLITS_OF_BONGARD)}, but got {split!r}")
    return found


def _file(entry: Entry, root: Path, split: str) -> tuple[Path, list[Path]]:
    words = split.split("_")
    name = f"bongard_hoi_test_{'_'.join([*words[2:], *words[:2]])}.json"
    inside = places(entry, root)
    file = next((file for place in inside for below in FILES_IN if (file := place / below / name).is_file()), None)
    if file is None:
        deeper = next((found for depth in ("*/", "*/*/", "*/*/*/") for found in sorted(root.glob(depth + name))), None)
        hint = (
            f"It lies in {deeper.parent}: pass the folder above it as root" if deeper else f"Expected: {entry.layout}"
        )
        raise FileNotFoundError(f"{entry.name}: no {name} in {root}. {hint}")
    return file, inside


def _sides(entry: Entry, file: Path, number: int, problem: Any) -> tuple[list[str], list[str]]:
    """The image paths of both sides; the file has the positives first."""
    positives, negatives, *_ = ([image["im_path"].removeprefix("./") for image in side] for side in problem[:2])
    if len(positives) != IMAGES or len(negatives) != IMAGES:
        raise ValueError(
            f"{entry.name}: problem {number} of {file} has {len(positives)} positives and {len(negatives)} negatives, expected "
            f"{IMAGES} of each. Download the file again"
        )
    return positives, negatives


def _located(folder: Path, paths: set[str]) -> dict[str, str]:
    """Where each image that exists is. The files name some images of PIC in its other half, train for val or val for train."""
    missing = missing_files(folder / path for path in paths)
    found = {path: str(folder / path) for path in paths if folder / path not in missing}
    for path in paths - set(found):
        other = re.sub("pic/image/(train|val)/", lambda half: f"pic/image/{OTHER_HALF[half[1]]}/", path)
        if (folder / other).is_file():
            found[path] = str(folder / other)
    return found


def _choose(sides: tuple[list[str], list[str]], at: dict[str, str], seed: int) -> Problem:
    """A query of each side, drawn from a stream that the seed and the problem's own images fix."""
    chance = random.Random(f"{seed} {sides}")
    (positives, positive), (negatives, negative) = (_drawn([at[path] for path in side], chance) for side in sides)
    return Problem(positives, negatives, (positive, negative), ("positive", "negative"))


def _drawn(side: list[str], chance: random.Random) -> tuple[tuple[str, ...], str]:
    query = chance.randrange(len(side))
    return tuple(side[:query] + side[query + 1 :]), side[query]
