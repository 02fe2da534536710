"""The registry of datasets against its sources: the paper, CoOp's splits, torchvision, and the page."""

from pathlib import Path

import pytest
import torch
import torchvision
from support.registry import OF_FOLLOWERS, OF_THE_PAPER

from tpt_lib.evaluation.data.registry import ENTRIES, parse_entries

ROOT = Path(__file__).parents[3]

SPLITS = {name: entry for name, entry in OF_THE_PAPER.items() if entry.split_file}


def test_the_registry_is_the_papers():
    recipes = {name: entry.recipe for name, entry in OF_THE_PAPER.items()}
    crops = ["imagenet", "imagenet-a", "imagenet-v2", "imagenet-r", "imagenet-sketch", "bongard-hoi"]
    assert [name for name, recipe in recipes.items() if recipe == "crop"] == crops
    assert [ENTRIES[name].counts["test"] for name in crops[:5]] == [50_000, 7_500, 10_000, 30_000, 50_889]
    assert [ENTRIES[name].classes for name in crops] == [1000, 200, 1000, 200, 1000, 2]
    fine_grained = [entry for name, entry in OF_THE_PAPER.items() if name not in crops]
    assert {entry.recipe for entry in fine_grained} == {"augmix"}
    assert len(fine_grained) == 10
    assert sum(entry.counts["test"] for entry in fine_grained) == 83_696


def test_the_counts_are_those_of_coops_splits():
    """Its code gives half, a fifth and the rest of each class to the parts, or holds a fifth of the original train set out."""
    of = {name: [entry.counts[split] for split in ("train", "val", "test")] for name, entry in SPLITS.items()}
    equal_classes = {"dtd": 120, "food101": 1000}
    for name, images in equal_classes.items():
        assert of[name] == [ENTRIES[name].classes * images * share // 10 for share in (5, 2, 3)]
    assert of["eurosat"] == [27_000 * share // 10 for share in (5, 2, 3)]
    assert of["sun397"] == [397 * images for images in (40, 10, 50)]
    assert [sum(of[name][:2]) for name in ("pets", "cars", "ucf101")] == [3_680, 8_144, 9_537]
    assert sum(of["flowers102"]) == sum(ENTRIES["flowers102"].original.values()) == 8_189
    assert sum(of["caltech101"]) == 9_144 - 467 - 435  # without the background and Faces_easy
    assert sum(ENTRIES["aircraft"].counts.values()) == 10_000


def test_the_page_has_every_dataset():
    lines = (ROOT / "docs/datasets.md").read_text().splitlines()
    for entry in OF_THE_PAPER.values():
        counts = " | ".join(
            f"{entry.counts[split]:,}" if split in entry.counts else "-" for split in ("train", "val", "test")
        )
        views = "-" if entry.family == "problems" else entry.recipe
        assert f"| `{entry.name}` | {entry.classes:,} | {counts} | {views} |" in lines
    for entry in OF_FOLLOWERS.values():
        counts = ", ".join(f"`{split}` {count:,}" for split, count in entry.counts.items())
        if entry.corruptions:
            first, count = next(iter(entry.counts.items()))
            counts = f"`{first}` … `{[*entry.counts][-1]}`, {count:,} each"
        assert f"| `{entry.name}` | {entry.classes:,} | {counts} |" in lines
    for entry in ENTRIES.values():
        files, folders = "`, `".join(entry.layout.split(", ")), "`, `".join(entry.folders)
        assert f"| `{entry.name}` | `{files}` | `{folders}` |" in lines
    for entry in OF_THE_PAPER.values():
        if entry.torchvision:
            counts = ", ".join(f"{split} {count:,}" for split, count in entry.original.items())
            assert f"| `{entry.name}` | `{entry.torchvision[1]}` | {counts} |" in lines


@pytest.mark.parametrize("entry", [e for e in OF_THE_PAPER.values() if e.torchvision], ids=lambda entry: entry.name)
def test_torchvision_reads_the_original_releases(entry):
    kind, folder = entry.torchvision
    assert issubclass(getattr(torchvision.datasets, kind), torch.utils.data.Dataset)
    assert entry.split_file
    assert entry.original
    assert any(folder.split("/")[0] == place.split("/")[0] for place in entry.folders)


def test_names_of_the_original_releases_become_words():
    assert ENTRIES["cars"].rename("Audi TT RS Coupe 2012") == "2012 Audi TT RS Coupe"
    assert ENTRIES["sun397"].rename("apartment_building/outdoor") == "outdoor apartment_building"
    assert ENTRIES["eurosat"].rename("HerbaceousVegetation") == "Herbaceous Vegetation"
    assert ENTRIES["food101"].rename("apple_pie") == "apple_pie"


def test_the_counts_of_the_followers_sets_add_up():
    """To the totals of their papers, which are published apart from the parts."""
    totals = {name: sum(entry.counts.values()) for name, entry in OF_FOLLOWERS.items()}
    assert totals["imagenet-c"] == 19 * 5 * 50_000
    assert totals["cifar10"] == totals["cifar100"] == 60_000
    assert totals["cifar10-c"] == totals["cifar100-c"] == 19 * 50_000
    assert totals["pacs"] == 9_991
    assert totals["office-home"] == 15_588
    assert totals["visda-c"] == 280_157
    assert totals["domainnet"] == 586_575
    tests = [count for split, count in OF_FOLLOWERS["domainnet"].counts.items() if split.endswith("test")]
    assert sum(tests) == 176_743
    assert [entry.name for entry in ENTRIES.values() if not entry.confirmed] == ["pacs", "office-home", "visda-c"]
    for entry in OF_FOLLOWERS.values():
        assert len(entry.names) in (0, entry.classes)
        assert len(set(entry.names)) == len(entry.names)
    assert OF_FOLLOWERS["cifar100-c"].names == OF_FOLLOWERS["cifar100"].names
    assert list(OF_FOLLOWERS["cifar100"].names) == sorted(OF_FOLLOWERS["cifar100"].names)  # as CIFAR-100 numbers them


MINIMAL = """
[mine]
title = "Mine"
family = "splits"
recipe = "augmix"
classes = 2
counts = { test = 4 }
layout = "mine/*.jpg"
folders = ["mine", "Mine"]
"""


def test_a_table_is_an_entry():
    entry = parse_entries(MINIMAL)["mine"]
    assert (entry.name, entry.folders, entry.images, entry.rename("a b")) == ("mine", ("mine", "Mine"), ("",), "a b")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("title", "titel", r"\[mine\] has unknown keys \['titel'\]; the keys are \['title', "),
        ("classes = 2\n", "", r"\[mine\] lacks the keys \['classes'\]"),
        ('"augmix"', '"mixup"', r"recipe of \[mine\] must be one of \('crop', 'augmix'\), but is 'mixup'"),
        ('"splits"', '"zip"', r"family of \[mine\] must be one of .*'cifar'\), but is 'zip'"),
        ("classes", 'rename = "eval"\nclasses', r"rename of \[mine\] must be one of \('year_first', .* but is 'eval'"),
    ],
)
def test_a_wrong_table_says_what_is_wrong(old, new, message):
    with pytest.raises(ValueError, match=f"datasets.toml: .*{message}"):
        parse_entries(MINIMAL.replace(old, new))
