"""The datasets of the paper, read from ``datasets.toml``: their files, sizes, and view recipes."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, field, fields
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, get_args

__all__ = ["ENTRIES", "SPLITS_OF_BONGARD", "Entry", "parse_entries"]

Family = Literal["synsets", "splits", "problems"]

Recipe = Literal["crop", "augmix"]

SPLITS_OF_BONGARD = ("seen_act_seen_obj", "unseen_act_seen_obj", "seen_act_unseen_obj", "unseen_act_unseen_obj")


@dataclass(frozen=True)
class Entry:
    """Describe one dataset of the registry.

    Attributes:
        name: the name that ``load_dataset`` takes.
        title: the paper's name for it.
        family: its layout on disk: folders of synsets, a split file next to images, or Bongard problems.
        recipe: how the paper makes views of its images.
        classes: number of classes.
        counts: published number of images per split; for the ten fine-grained sets, those of CoOp's splits, which the
            paper uses.
        layout: the files expected below the root.
        folders: folders below the root that may hold it.
        images: folders below those that may hold the images.
        split_file: CoOp's file of splits.
        torchvision: the torchvision class that reads the original release, and the folder it reads.
        original: number of images per split of that release.
        scipy: whether reading the original release needs scipy.
        rename: turns a class name of the original release into the words of the prompt.
    """

    name: str
    title: str
    family: Family
    recipe: Recipe
    classes: int
    counts: Mapping[str, int]
    layout: str
    folders: tuple[str, ...]
    images: tuple[str, ...] = ("",)
    split_file: str = ""
    torchvision: tuple[str, str] | None = None
    original: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    scipy: bool = False
    rename: Callable[[str], str] = str


def year_first(name: str) -> str:
    """Return a name of Stanford Cars as CoOp writes it: "Audi TT 2012" becomes "2012 Audi TT"."""
    *words, year = name.split(" ")
    return " ".join([year, *words])


def last_part_first(name: str) -> str:
    """Return a name of SUN397 as CoOp writes it: "church/indoor" becomes "indoor church"."""
    return " ".join(reversed(name.split("/")))


def split_words(name: str) -> str:
    """Return a name of EuroSAT as words: "AnnualCrop" becomes "Annual Crop"."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", " ", name)


RENAMES = {rename.__name__: rename for rename in (year_first, last_part_first, split_words)}


def parse_entries(text: str) -> dict[str, Entry]:
    """Return the entries of a TOML text with one table per dataset, by name.

    Args:
        text: tables whose keys are the attributes of ``Entry`` other than ``name``.

    Raises:
        ValueError: if a table has an unknown key, lacks a required one, or has a value that is not a choice.

    >>> [(name, entry.classes) for name, entry in ENTRIES.items()][:2]
    [('imagenet', 1000), ('imagenet-a', 200)]
    """
    return {name: _entry(name, table) for name, table in tomllib.loads(text).items()}


def _entry(name: str, table: dict[str, Any]) -> Entry:
    known = {one.name: one for one in fields(Entry) if one.name != "name"}
    required = [key for key, one in known.items() if one.default is MISSING and one.default_factory is MISSING]
    if unknown := [key for key in table if key not in known]:
        raise ValueError(f"datasets.toml: [{name}] has unknown keys {unknown}; the keys are {[*known]}")
    if missing := [key for key in required if key not in table]:
        raise ValueError(f"datasets.toml: [{name}] lacks the keys {missing}")
    for key, choices in {"family": get_args(Family), "recipe": get_args(Recipe), "rename": tuple(RENAMES)}.items():
        if key in table and table[key] not in choices:
            raise ValueError(f"datasets.toml: {key} of [{name}] must be one of {choices}, but is {table[key]!r}")
    values: dict[str, Any] = {key: tuple(value) if isinstance(value, list) else value for key, value in table.items()}
    if "rename" in values:
        values["rename"] = RENAMES[values["rename"]]
    return Entry(name=name, **values)


ENTRIES: Mapping[str, Entry] = MappingProxyType(
    parse_entries(Path(__file__).with_name("datasets.toml").read_text(encoding="utf-8"))
)
