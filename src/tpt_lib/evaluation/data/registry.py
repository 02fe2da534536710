"""The datasets of the paper: where their files lie, how many images there are, which recipe the paper used."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Literal, NamedTuple

__all__ = ["ENTRIES", "SPLITS_OF_BONGARD", "Entry", "Listing", "places"]

Family = Literal["synsets", "splits", "problems"]

SPLITS_OF_BONGARD = ("seen_act_seen_obj", "unseen_act_seen_obj", "seen_act_unseen_obj", "unseen_act_unseen_obj")


class Listing(NamedTuple):
    """What was found on disk, before any image is read: files, the label of each, the names of the classes."""

    paths: list[Path]
    labels: list[int]
    classes: tuple[str, ...]


@dataclass(frozen=True)
class Entry:
    """One dataset of the registry.

    Attributes:
        name: what ``load_dataset`` takes.
        title: what the paper calls it.
        family: how it lies on disk: folders of synsets, a split file beside images, Bongard problems.
        recipe: how the paper makes views of its images.
        classes: how many there are.
        counts: the published number of images of each split; of the ten fine-grained sets, of CoOp's splits, which the
            paper uses.
        layout: the files that are expected below the root.
        folders: folders below the root that may hold it.
        images: folders below those that may hold the images.
        split_file: CoOp's file of splits.
        torchvision: the class of torchvision that reads the original release, and the folder it reads.
        original: the number of images of the splits of that release; those of ``counts`` if it is the same split.
        scipy: whether the original release needs scipy to be read.
        rename: from a class name of the original release to the words the prompt has.
    """

    name: str
    title: str
    family: Family
    recipe: Literal["crop", "augmix"]
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


def places(entry: Entry, root: Path) -> list[Path]:
    """The root itself and the folders in it that may hold the dataset, as far as they exist."""
    return [place for place in (root, *(root / folder for folder in entry.folders)) if place.is_dir()]


def _year_first(name: str) -> str:
    *words, year = name.split(" ")
    return " ".join([year, *words])


def _last_part_first(name: str) -> str:
    return " ".join(reversed(name.split("/")))


def _words(name: str) -> str:
    return re.sub(r"(?<=[a-z])(?=[A-Z])", " ", name)


_ALL = [
    Entry(
        name="imagenet",
        title="ImageNet",
        family="synsets",
        recipe="crop",
        classes=1000,
        counts={"test": 50_000, "val": 50_000, "train": 1_281_167},
        layout="imagenet/images/val/n01440764/*.JPEG, imagenet/images/train/n01440764/*.JPEG",
        folders=("imagenet/images", "imagenet", "ImageNet", "ILSVRC2012", "images", "Data/CLS-LOC"),
    ),
    Entry(
        name="imagenet-a",
        title="ImageNet-A",
        family="synsets",
        recipe="crop",
        classes=200,
        counts={"test": 7_500},
        layout="imagenet-a/n01498041/*.jpg",
        folders=("imagenet-a", "imagenet-adversarial/imagenet-a"),
    ),
    Entry(
        name="imagenet-v2",
        title="ImageNet-V2",
        family="synsets",
        recipe="crop",
        classes=1000,
        counts={"test": 10_000},
        layout="imagenetv2-matched-frequency-format-val/0/*.jpeg … 999/*.jpeg",
        folders=(
            "imagenetv2-matched-frequency-format-val",
            "imagenetv2/imagenetv2-matched-frequency-format-val",
            "imagenetv2",
        ),
    ),
    Entry(
        name="imagenet-r",
        title="ImageNet-R",
        family="synsets",
        recipe="crop",
        classes=200,
        counts={"test": 30_000},
        layout="imagenet-r/n01443537/*.jpg",
        folders=("imagenet-r", "imagenet-rendition/imagenet-r"),
    ),
    Entry(
        name="imagenet-sketch",
        title="ImageNet-Sketch",
        family="synsets",
        recipe="crop",
        classes=1000,
        counts={"test": 50_889},
        layout="imagenet-sketch/images/n01440764/*.JPEG",
        folders=("imagenet-sketch/images", "imagenet-sketch", "ImageNet-Sketch", "sketch", "images"),
    ),
    Entry(
        name="flowers102",
        title="Flower102",
        family="splits",
        recipe="augmix",
        classes=102,
        counts={"train": 4_093, "val": 1_633, "test": 2_463},
        layout="oxford_flowers/split_zhou_OxfordFlowers.json, oxford_flowers/jpg/*.jpg",
        folders=("oxford_flowers", "flowers-102", "Flower102"),
        images=("jpg",),
        split_file="split_zhou_OxfordFlowers.json",
        torchvision=("Flowers102", "flowers-102"),
        original={"train": 1_020, "val": 1_020, "test": 6_149},
        scipy=True,
    ),
    Entry(
        name="dtd",
        title="DTD",
        family="splits",
        recipe="augmix",
        classes=47,
        counts={"train": 2_820, "val": 1_128, "test": 1_692},
        layout="dtd/split_zhou_DescribableTextures.json, dtd/images/banded/*.jpg",
        folders=("dtd", "dtd/dtd", "DTD"),
        images=("images", "dtd/images"),
        split_file="split_zhou_DescribableTextures.json",
        torchvision=("DTD", "dtd/dtd"),
        original={"train": 1_880, "val": 1_880, "test": 1_880},
    ),
    Entry(
        name="pets",
        title="Pets",
        family="splits",
        recipe="augmix",
        classes=37,
        counts={"train": 2_944, "val": 736, "test": 3_669},
        layout="oxford_pets/split_zhou_OxfordPets.json, oxford_pets/images/*.jpg",
        folders=("oxford_pets", "oxford-iiit-pet", "OxfordPets"),
        images=("images", ""),
        split_file="split_zhou_OxfordPets.json",
        torchvision=("OxfordIIITPet", "oxford-iiit-pet"),
        original={"trainval": 3_680, "test": 3_669},
    ),
    Entry(
        name="cars",
        title="Cars",
        family="splits",
        recipe="augmix",
        classes=196,
        counts={"train": 6_509, "val": 1_635, "test": 8_041},
        layout="stanford_cars/split_zhou_StanfordCars.json, stanford_cars/cars_train/*.jpg, stanford_cars/cars_test/*.jpg",
        folders=("stanford_cars", "StanfordCars"),
        split_file="split_zhou_StanfordCars.json",
        torchvision=("StanfordCars", "stanford_cars/devkit"),
        original={"train": 8_144, "test": 8_041},
        scipy=True,
        rename=_year_first,
    ),
    Entry(
        name="ucf101",
        title="UCF101",
        family="splits",
        recipe="augmix",
        classes=101,
        counts={"train": 7_639, "val": 1_898, "test": 3_783},
        layout="ucf101/split_zhou_UCF101.json, ucf101/UCF-101-midframes/Apply_Eye_Makeup/*.jpg",
        folders=("ucf101", "UCF101"),
        images=("UCF-101-midframes", ""),
        split_file="split_zhou_UCF101.json",
    ),
    Entry(
        name="caltech101",
        title="Caltech101",
        family="splits",
        recipe="augmix",
        classes=100,
        counts={"train": 4_128, "val": 1_649, "test": 2_465},
        layout="caltech-101/split_zhou_Caltech101.json, caltech-101/101_ObjectCategories/accordion/*.jpg",
        folders=("caltech-101", "caltech101", "Caltech101"),
        images=("101_ObjectCategories", ""),
        split_file="split_zhou_Caltech101.json",
    ),
    Entry(
        name="food101",
        title="Food101",
        family="splits",
        recipe="augmix",
        classes=101,
        counts={"train": 50_500, "val": 20_200, "test": 30_300},
        layout="food-101/split_zhou_Food101.json, food-101/images/apple_pie/*.jpg",
        folders=("food-101", "Food101"),
        images=("images",),
        split_file="split_zhou_Food101.json",
        torchvision=("Food101", "food-101"),
        original={"train": 75_750, "test": 25_250},
    ),
    Entry(
        name="sun397",
        title="SUN397",
        family="splits",
        recipe="augmix",
        classes=397,
        counts={"train": 15_880, "val": 3_970, "test": 19_850},
        layout="sun397/split_zhou_SUN397.json, sun397/SUN397/a/abbey/*.jpg",
        folders=("sun397", "SUN397"),
        images=("SUN397", ""),
        split_file="split_zhou_SUN397.json",
        torchvision=("SUN397", "SUN397"),
        original={"all": 108_754},
        rename=_last_part_first,
    ),
    Entry(
        name="aircraft",
        title="Aircraft",
        family="splits",
        recipe="augmix",
        classes=100,
        counts={"train": 3_334, "val": 3_333, "test": 3_333},
        layout="fgvc_aircraft/variants.txt, fgvc_aircraft/images_variant_test.txt, fgvc_aircraft/images/*.jpg",
        folders=("fgvc_aircraft", "fgvc-aircraft-2013b/data", "data"),
    ),
    Entry(
        name="eurosat",
        title="EuroSAT",
        family="splits",
        recipe="augmix",
        classes=10,
        counts={"train": 13_500, "val": 5_400, "test": 8_100},
        layout="eurosat/split_zhou_EuroSAT.json, eurosat/2750/AnnualCrop/*.jpg",
        folders=("eurosat", "EuroSAT"),
        images=("2750", ""),
        split_file="split_zhou_EuroSAT.json",
        torchvision=("EuroSAT", "eurosat/2750"),
        original={"all": 27_000},
        rename=_words,
    ),
    Entry(
        name="bongard-hoi",
        title="Bongard-HOI",
        family="problems",
        recipe="crop",
        classes=2,
        counts={},
        layout="bongard-hoi/bongard_hoi_release/bongard_hoi_test_seen_obj_seen_act.json, bongard-hoi/hake/images/…/*.jpg",
        folders=("bongard-hoi", "bongard_hoi", "Bongard-HOI"),
        images=("", "hake", "hake/images", "images", "assets/data/hake", "assets/data/hake/images"),
    ),
]

ENTRIES: Mapping[str, Entry] = MappingProxyType({entry.name: entry for entry in _ALL})
