"""Read Bongard-HOI: problems of image paths, with a fixed choice of supports and queries."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from torch.utils.data import Dataset

from tpt_lib.evaluation.data.folders import candidate_folders, path_below, quoted
from tpt_lib.evaluation.data.registry import SPLITS_OF_BONGARD, Entry
from tpt_lib.evaluation.data.split_files import first_with, missing_files
from tpt_lib.text_files import read_json
from tpt_lib.types import ImageLike

__all__ = ["Problem", "Problems", "read_problems"]

IMAGES = 7  # per side of a problem: six supports and a query

FILES_IN = ("", "bongard_hoi_release", "cache", "cache/bongard_hoi_release", "bongard_splits", "data/bongard_splits")

OTHER_HALF = {"train": "val", "val": "train"}

Sides = tuple[list[str], list[str]]


class Problem(NamedTuple):
    """One Bongard problem; ``bongard_tpt(model, *problem[:3])`` solves it.

    Attributes:
        positives: six images that show the concept, for Bongard-HOI their paths.
        negatives: six images that do not.
        queries: the images to judge, one per side.
        truths: the side of each query, ``"positive"`` or ``"negative"``.
    """

    positives: tuple[ImageLike, ...]
    negatives: tuple[ImageLike, ...]
    queries: tuple[ImageLike, ...]
    truths: tuple[str, ...]


class Problems(Dataset[Problem]):
    """A torch dataset of problems."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        self.problems = tuple(problems)

    def __len__(self) -> int:
        return len(self.problems)

    def __getitem__(self, index: int) -> Problem:
        return self.problems[index]


def read_problems(entry: Entry, root: Path, split: str, *, subset: bool, seed: int) -> tuple[Problems, str]:
    """Return the problems of a split, and its name in the paper's word order (action before object)."""
    split = _split(entry, split)
    file, inside = _file(entry, root, split)
    problems = read_json(entry.name, file)
    if not isinstance(problems, list):
        raise ValueError(
            f"{entry.name}: {file} must hold a list of problems, but holds a {type(problems).__name__}. Download it again"
        )
    sides = [_sides(entry, file, number, problem) for number, problem in enumerate(problems)]
    if not sides:
        raise ValueError(f"{entry.name}: {file} holds no problems. Download it again")
    folder = first_with(entry.name, (place / images for place in inside for images in entry.images), sides[0][0][0])
    paths = {path for pair in sides for side in pair for path in side}
    found = _locate(folder, paths)
    complete = [pair for pair in sides if all(path in found for side in pair for path in side)]
    if len(complete) < len(sides) and not subset:
        missing = sorted(paths - set(found))
        raise FileNotFoundError(
            f"{entry.name}: {len(missing)} images of {len(sides) - len(complete)} of {len(sides)} problems are not in "
            f"{folder}: {quoted(missing)}. Download the rest, or pass subset=True to leave these problems out"
        )
    return Problems([_problem(pair, found, seed) for pair in complete]), split


def _split(entry: Entry, split: str) -> str:
    """Return the paper's name of a split, from that name or the one in the files, which has the object before the action."""
    words = split.removeprefix("test_").split("_")
    found = next((name for name in ("_".join(words), _swapped(words)) if name in SPLITS_OF_BONGARD), None)
    if found is None:
        raise ValueError(f"{entry.name}: split must be one of {', '.join(SPLITS_OF_BONGARD)}, but got {split!r}")
    return found


def _swapped(words: list[str]) -> str:
    return "_".join([*words[2:], *words[:2]])


def _file(entry: Entry, root: Path, split: str) -> tuple[Path, list[Path]]:
    """Return the file of a split, and the folders that may hold its images."""
    name = f"bongard_hoi_test_{_swapped(split.split('_'))}.json"
    inside = candidate_folders(entry, root)
    file = next((file for place in inside for below in FILES_IN if (file := place / below / name).is_file()), None)
    if file is None:
        deeper = next((found for depth in ("*/", "*/*/", "*/*/*/") for found in sorted(root.glob(depth + name))), None)
        hint = f"It is in {deeper.parent}: pass the folder above it as root" if deeper else f"Expected: {entry.layout}"
        raise FileNotFoundError(f"{entry.name}: no {name} in {root}. {hint}")
    return file, inside


def _sides(entry: Entry, file: Path, number: int, problem: Any) -> Sides:
    """Return the image paths of both sides; the file has the positives first."""
    try:
        positives, negatives = (
            [path_below(entry.name, file, _path(image)) for image in side] for side in (problem[0], problem[1])
        )
    except (LookupError, TypeError) as error:
        raise ValueError(
            f"{entry.name}: problem {number} of {file} must be [positives, negatives, ...], lists of images with 'im_path', "
            f"but is {repr(problem)[:80]}. Download the file again"
        ) from error
    if len(positives) != IMAGES or len(negatives) != IMAGES:
        raise ValueError(
            f"{entry.name}: problem {number} of {file} has {len(positives)} positives and {len(negatives)} negatives, "
            f"expected {IMAGES} of each. Download the file again"
        )
    return positives, negatives


def _path(image: Any) -> str:
    path = image["im_path"]
    if not isinstance(path, str):
        raise TypeError(f"im_path is a {type(path).__name__}")
    return path


def _locate(folder: Path, paths: set[str]) -> dict[str, str]:
    """Return the location of each image that exists. For some images of PIC, the files confuse train and val."""
    missing = missing_files(folder / path for path in paths)
    found = {path: str(folder / path) for path in paths if folder / path not in missing}
    for path in paths - set(found):
        other = re.sub("pic/image/(train|val)/", lambda half: f"pic/image/{OTHER_HALF[half[1]]}/", path)
        if (folder / other).is_file():
            found[path] = str(folder / other)
    return found


def _problem(sides: Sides, found: dict[str, str], seed: int) -> Problem:
    """Draw one query per side, from a stream that depends only on the seed and the problem's own images."""
    chance = random.Random(f"{seed} {sides}")
    (positives, positive), (negatives, negative) = (_drawn([found[path] for path in side], chance) for side in sides)
    return Problem(positives, negatives, (positive, negative), ("positive", "negative"))


def _drawn(side: list[str], chance: random.Random) -> tuple[tuple[str, ...], str]:
    query = chance.randrange(len(side))
    return tuple(side[:query] + side[query + 1 :]), side[query]
