"""The datasets of the paper and of its followers, read from TOML files: their files, sizes, and view recipes."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, field, fields
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, get_args

__all__ = ["EMBEDDED", "ENTRIES", "SEVERITIES", "SPLITS_OF_BONGARD", "STYLES", "Entry", "parse_entries"]

Family = Literal["synsets", "splits", "problems", "domains", "lists", "cifar"]

Recipe = Literal["crop", "augmix"]

SPLITS_OF_BONGARD = ("seen_act_seen_obj", "unseen_act_seen_obj", "seen_act_unseen_obj", "unseen_act_unseen_obj")

SEVERITIES = (1, 2, 3, 4, 5)

STYLES = ("noto-v1", "emojione-monotone", "fluent-emoji-high-contrast")  # of the drawings in the package

EMBEDDED = {  # what comes with the package: its name on the command line, and the call that loads it
    **{style: f"load_tiny_drawings({style!r})" for style in STYLES},
    "tiny-bongard": "load_tiny_bongard()",
}


@dataclass(frozen=True)
class Entry:
    """Describe one dataset of the registry.

    Attributes:
        name: the name that ``load_dataset`` takes.
        title: the paper's name for it.
        family: its layout on disk: folders of synsets, a split file next to images, Bongard problems, a folder per domain,
            lists of paths and labels, or CIFAR's arrays.
        recipe: how the paper makes views of its images.
        classes: number of classes.
        counts: published number of images per split; for the ten fine-grained sets, those of CoOp's splits, which the
            paper uses. A split is ``"test"``, a domain, or a corruption and severity.
        layout: the files expected below the root.
        folders: folders below the root that may hold it.
        images: folders below those that may hold the images.
        split_file: CoOp's file of splits, or the list of a split, with ``{split}`` for its name.
        torchvision: the torchvision class that reads the original release, and the folder it reads.
        original: number of images per split of that release.
        scipy: whether reading the original release needs scipy.
        rename: turns a class name of the original release into the words of the prompt.
        names: class names in the order of the labels, where the files do not have them.
        corruptions: names of the corruptions; the splits are ``"corruption/severity"``.
        absent: classes without images in some splits, as published.
        confirmed: whether the counts are from the dataset's own documentation. Otherwise it is loaded only as a subset.
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
    names: tuple[str, ...] = ()
    corruptions: tuple[str, ...] = ()
    absent: tuple[str, ...] = ()
    confirmed: bool = True


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
    tables = tomllib.loads(text)
    for table in tables.values():
        for key in ("names", "corruptions"):
            if isinstance(table.get(key), str):
                table[key] = tables[table[key]][key]
    return {name: _entry(name, table) for name, table in tables.items()}


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
    if "corruptions" in values:
        count = values["counts"]["severity"]
        values["counts"] = {f"{one}/{severity}": count for one in values["corruptions"] for severity in SEVERITIES}
    return Entry(name=name, **values)


def _read(file: str) -> dict[str, Entry]:
    return parse_entries(Path(__file__).with_name(file).read_text(encoding="utf-8"))


ENTRIES: Mapping[str, Entry] = MappingProxyType({**_read("datasets.toml"), **_read("datasets_followers.toml")})
