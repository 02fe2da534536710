"""What a dataset is known by: paths, labels and a few images; what may change, and what may not."""

import json
import shutil

import numpy as np
import PIL.Image
import pytest
import torch
from support.command_line import save
from support.miniatures import bongard
from support.noise_runs import NAMES, Noise

import tpt_lib
from tpt_lib import EvalSet, load_dataset
from tpt_lib.evaluation.data import data_identity
from tpt_lib.evaluation.data.data_identity import LOOKED_AT, dataset_identity, differing_data


def photos(folder, seed=0, count=3):
    """Save photos of two classes; return them as a dataset."""
    for name in ("cat", "dog"):
        for i in range(count):
            save(folder / name / f"{i}.png", seed + i)
    return load_dataset(folder)


def differing(one, other):
    return list(differing_data(dataset_identity(one), dataset_identity(other)))


def test_two_folders_of_one_name_and_the_same_files_are_two_datasets(tmp_path):
    one, other = photos(tmp_path / "v1/photos"), photos(tmp_path / "v2/photos", seed=7)
    assert [str(path)[-9:] for path in one.samples.paths] == [str(path)[-9:] for path in other.samples.paths]
    found = differing(one, other)
    assert found[0] == "root"
    assert "images.0" in found
    assert differing(one, one) == []
    assert json.loads(json.dumps(dataset_identity(one))) == dataset_identity(one)


def test_a_dataset_may_be_moved(tmp_path):
    before = dataset_identity(photos(tmp_path / "old"))
    shutil.copytree(tmp_path / "old", tmp_path / "new/place")
    copied = dataset_identity(load_dataset(tmp_path / "new/place"))
    assert list(differing_data(before, copied)) == ["root"]  # both are there: which one is meant?
    shutil.rmtree(tmp_path / "old")
    assert differing_data(before, copied) == {}
    shutil.rmtree(tmp_path / "new")
    moved = dataset_identity(photos(tmp_path / "new/place", seed=7))
    assert "images.0" in differing_data(before, moved)


def test_a_link_is_what_it_points_to(tmp_path):
    one = photos(tmp_path / "photos")
    (tmp_path / "link").symlink_to(tmp_path / "photos")
    assert differing(one, load_dataset(tmp_path / "link")) == []


@pytest.mark.parametrize(
    "change",
    [
        lambda folder: save(folder / "cat/9.png"),
        lambda folder: (folder / "cat/1.png").unlink(),
        lambda folder: (folder / "cat/1.png").rename(folder / "cat/a.png"),
        lambda folder: (folder / "cat/1.png").rename(folder / "dog/9.png"),
    ],
)
def test_other_files_are_another_dataset(change, tmp_path):
    before = dataset_identity(photos(tmp_path))
    change(tmp_path)
    assert "digest" in differing_data(before, dataset_identity(load_dataset(tmp_path)))


def test_labels_and_their_order_count():
    images = list(torch.rand(4, 3, 8, 8))

    def of(order, labels):
        return EvalSet("x", [(images[i], label) for i, label in zip(order, labels, strict=True)], ("cat", "dog"))

    one = of([0, 1, 2, 3], [0, 1, 0, 1])
    assert differing(one, of([0, 1, 2, 3], [0, 1, 0, 1])) == []
    assert differing(one, of([0, 1, 2, 3], [0, 1, 1, 1])) == ["digest"]
    assert "digest" in differing(one, of([0, 2, 1, 3], [0, 0, 1, 1]))
    assert differing(one.take([1, 3]), of([1, 3], [1, 1])) == []
    assert "digest" in differing(one.take([1, 3]), one.take([3, 1]))


@pytest.mark.parametrize(
    "kind",
    [
        lambda pixels: pixels,
        lambda pixels: pixels.permute(1, 2, 0).numpy(),
        lambda pixels: PIL.Image.fromarray(pixels.permute(1, 2, 0).numpy()),
    ],
    ids=["tensors", "arrays", "PIL"],
)
def test_every_image_in_memory_counts(kind):
    count = 2 * LOOKED_AT + 1

    def of(last):
        images = torch.zeros(count, 3, 8, 8, dtype=torch.uint8)
        images[-1, 0, 0, 0] = last
        return EvalSet("x", [(kind(image), 0) for image in images], ("cat", "dog"))

    assert differing(of(0), of(0)) == []
    assert differing(of(0), of(1)) == ["digest"]


class Stored(torch.utils.data.Dataset):
    """As torchvision keeps small sets: all pixels in ``data``, all labels in ``targets``."""

    def __init__(self, last=0):
        self.data, self.targets = np.zeros((50, 8, 8, 3), dtype=np.uint8), [0] * 50
        self.data[-1] = last

    def __len__(self):
        return 50

    def __getitem__(self, i):
        return self.data[i], self.targets[i]


def test_a_dataset_that_keeps_its_pixels_counts_in_full():
    one, same, other = (EvalSet("x", Stored(last), ("cat", "dog")) for last in (0, 0, 1))
    assert differing(one, same) == []
    assert differing(one, other) == ["digest"]


def test_a_dataset_that_shows_nothing_is_known_by_a_few_of_its_images():
    class Other(Noise):
        def __getitem__(self, i):
            return 255 - super().__getitem__(i)[0], i % 2

    noise = EvalSet("noise", Noise(40), NAMES)
    assert len(dataset_identity(noise)["images"]) == LOOKED_AT
    assert differing(noise, EvalSet("noise", Noise(40, slow=1e-3), NAMES)) == []
    assert differing(noise, EvalSet("noise", Noise(41), NAMES))[0] == "digest"
    assert len(differing(noise, EvalSet("noise", Other(40), NAMES))) == LOOKED_AT


def test_an_image_that_was_missing_or_broken_may_be_repaired(tmp_path):
    data = photos(tmp_path)
    (tmp_path / "cat/0.png").write_bytes(b"")
    (tmp_path / "dog/1.png").unlink()
    before = dataset_identity(data)
    assert len(before["images"]) == 4
    photos(tmp_path)
    after = dataset_identity(data)
    assert len(after["images"]) == 6
    assert differing_data(before, after) == differing_data(after, before) == {}
    assert differing(EvalSet("noise", Noise(bad=[3]), NAMES), EvalSet("noise", Noise(), NAMES)) == []


def test_few_files_are_read(tmp_path, monkeypatch):
    read = []
    data = photos(tmp_path, count=20)
    monkeypatch.setattr(data_identity, "read_image", lambda image: read.append(image) or torch.zeros(1))
    dataset_identity(data)
    assert len(set(read)) == len(read) == LOOKED_AT
    assert {path.split("/")[-2] for path in read} == {"cat", "dog"}


def test_torchvision_folders_list_their_paths(tmp_path):
    from torchvision.datasets import ImageFolder

    photos(tmp_path / "photos")
    one = load_dataset(ImageFolder(tmp_path / "photos"))
    assert dataset_identity(one)["root"] == str((tmp_path / "photos").resolve())
    before = dataset_identity(one)
    (tmp_path / "photos/cat/1.png").rename(tmp_path / "photos/cat/a.png")
    assert "digest" in differing_data(before, dataset_identity(load_dataset(ImageFolder(tmp_path / "photos"))))


def test_problems_count_with_their_choice_of_queries(tmp_path):
    bongard(tmp_path)
    split = {"split": "seen_act_seen_obj"}
    one, same = (load_dataset("bongard-hoi", tmp_path, **split) for _ in range(2))
    others = [load_dataset("bongard-hoi", tmp_path, **split, seed=seed) for seed in range(1, 6)]
    assert differing(one, same) == []
    assert any("digest" in differing(one, other) for other in others)


def test_problems_in_memory_count_in_full():
    one, same, other = (tpt_lib.load_tiny_bongard(seed, n=3) for seed in (0, 0, 1))
    assert differing(one, same) == []
    assert "digest" in differing(one, other)
    problem = one.samples[0]
    turned = EvalSet("x", [problem._replace(truths=problem.truths[::-1]), *one.samples[1:]], one.classes)
    assert differing(one, turned) == ["digest"]
