"""Orders of a stream: each sample once, determined by a seed, and what each order promises."""

from itertools import groupby, pairwise
from pathlib import Path

import pytest
from torch.utils.data import Dataset

from tpt_lib.evaluation import EvalSet, ImageFiles
from tpt_lib.evaluation.data.orders import ORDERS, dirichlet_order, grouped_order, sample_order, shuffled_order

LABELS = [i % 5 for i in range(100)]
DOMAINS = ("photo", "sketch", "art")


def files(paths, labels):
    return EvalSet("files", ImageFiles(paths, labels), [f"class {i}" for i in range(5)])


def tree():
    """Three domains of the same five classes, mixed."""
    return files([f"/data/{DOMAINS[i % 3]}/{i % 5}/{i}.png" for i in range(60)], [i % 5 for i in range(60)])


@pytest.mark.parametrize("name", [*ORDERS, "dirichlet:10", "dirichlet:1e-6"])
@pytest.mark.parametrize("seed", [0, 1, -1, 2**40])
def test_every_sample_comes_once_and_the_seed_decides(name, seed):
    order = sample_order("caller", tree(), name)
    found = order(seed)
    assert sorted(found) == list(range(60))
    assert found == order(seed)
    assert all(type(index) is int for index in found)
    assert (found == order(seed + 1)) == (name == "dataset")


def test_the_order_of_the_dataset_and_a_shuffle():
    assert sample_order("caller", tree(), "dataset")(3) == list(range(60))
    shuffled = shuffled_order(1000, 0)
    assert shuffled != list(range(1000))
    assert abs(sum(shuffled[:500]) / 500 - 499.5) < 50


def runs(values):
    """Number of runs of equal values."""
    return sum(1 for _ in groupby(values))


def test_sorted_by_class():
    found = sample_order("caller", tree(), "by-class")(0)
    assert [i % 5 for i in found] == sorted(i % 5 for i in range(60))
    assert found[:12] != sorted(found[:12])  # shuffled inside


def test_domain_after_domain_in_the_order_of_the_dataset():
    found = sample_order("caller", tree(), "domains")(0)
    assert [DOMAINS[i % 3] for i in found] == [name for name in DOMAINS for _ in range(20)]
    assert runs(i % 5 for i in found) > 30  # classes are mixed inside
    part = tree().take(list(range(59, -1, -1)))
    found = sample_order("caller", part, "domains")(0)
    assert [DOMAINS[(59 - i) % 3] for i in found[::20]] == ["art", "sketch", "photo"]


class Listed(Dataset):
    def __init__(self, domains, targets=None):
        self.domains, self.targets = domains, targets

    def __len__(self):
        return 4

    def __getitem__(self, i):
        raise AssertionError("an image was read")


def test_a_dataset_may_list_its_domains():
    data = EvalSet("mine", Listed(["a", "b", "a", "b"]), ["cat"])
    assert [i % 2 for i in sample_order("caller", data, "domains")(0)] == [0, 0, 1, 1]
    assert [i % 2 for i in sample_order("caller", data.take([1, 2]), "domains")(0)] in ([0, 1], [1, 0])
    with pytest.raises(ValueError, match="`domains` must have one entry per sample, 4, but has 3"):
        sample_order("caller", EvalSet("mine", Listed("abc"), ["cat"]), "domains")


@pytest.mark.statistical
def test_a_small_concentration_makes_bursts():
    concentrations = (0.1, 1.0, 1e3)
    counts = [
        sum(runs(LABELS[i] for i in dirichlet_order(LABELS, seed, concentration=c)) for seed in range(20)) / 20
        for c in concentrations
    ]
    assert all(a < b for a, b in pairwise(counts)), counts
    mixed = sum(runs(LABELS[i] for i in shuffled_order(100, seed)) for seed in range(20)) / 20
    assert abs(counts[-1] - mixed) < 5
    assert dirichlet_order(LABELS, 0) == dirichlet_order(LABELS, 0, concentration=0.1)


def test_one_class_and_one_sample():
    assert sorted(dirichlet_order([3, 3, 3], 0)) == [0, 1, 2]
    assert grouped_order([7], 0) == dirichlet_order([7], 0) == [0]


@pytest.mark.parametrize(
    ("data", "name", "message"),
    [
        (tree(), "sorted", "caller: order must be one of dataset, shuffle, by-class, dirichlet, domains or such as"),
        (tree(), "shuffle:3", "caller: order must be one of .* but got 'shuffle:3'"),
        (tree(), "dirichlet:", "the concentration of a Dirichlet order must be a number above 0, .* but got ''"),
        (tree(), "dirichlet:0", "must be a number above 0, .* but got '0'"),
        (tree(), "dirichlet:inf", "must be a number above 0, .* but got 'inf'"),
        (tree(), "dirichlet:much", "must be a number above 0, .* but got 'much'"),
        (EvalSet("mine", Listed(None), ["cat"]), "by-class", "order='by-class' needs the labels .* mine does not list them"),
        (EvalSet("mine", Listed(None), ["cat"]), "dirichlet", "order='dirichlet' needs the labels before images are read"),
        (EvalSet("mine", Listed(None), ["cat"]), "domains", "needs the domain of each sample, but mine has none"),
        (files(["/d/0/a.png", "/d/1/b.png"], [0, 1]), "domains", "files has none; give its dataset a list `domains`"),
        (files(["/d/a/0/a.png", "/d/b/1/b.png"], [0, 1]), "domains", "no class of files is in more than one such folder"),
    ],
)  # fmt: skip
def test_what_cannot_be_ordered_is_refused(data, name, message):
    with pytest.raises(ValueError, match=message):
        sample_order("caller", data, name)


def test_relative_paths_have_domains(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    paths = [str(Path(domain, label, "1.png")) for domain in ("a", "b") for label in "01"]
    assert sample_order("caller", files(paths, [0, 1, 0, 1]), "domains")(0)[:2] in ([0, 1], [1, 0])
