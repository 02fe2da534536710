"""CIFAR and its corrupted versions, in arrays."""

import hashlib
import pickle

import numpy as np
import pytest
import torchvision

from tpt_lib.evaluation import ENTRIES, dataset_identity, load_dataset
from tpt_lib.views.reading import read_image


def corrupted(folder, each=3, name="fog"):
    folder.mkdir(parents=True, exist_ok=True)
    images = np.arange(5 * each, dtype=np.uint8)[:, None, None, None] + np.zeros((1, 32, 32, 3), np.uint8)
    np.save(folder / f"{name}.npy", images)
    np.save(folder / "labels.npy", np.tile(np.arange(each), 5))


def test_a_corruption_and_severity(tmp_path, published):
    corrupted(tmp_path / "CIFAR-10-C")
    with pytest.raises(ValueError, match="cifar10-c: found 3 images of 'fog/2', fewer than the published 10000"):
        load_dataset("cifar10-c", tmp_path, split="fog/2")
    published("cifar10-c", counts={f"fog/{s}": 3 for s in range(1, 6)})
    found = load_dataset("cifar10-c", tmp_path, split="fog/2")
    assert (found.labels, found.classes[:2]) == ([0, 1, 2], ("airplane", "automobile"))
    assert [int(read_image(image)[0, 0, 0]) for image, _ in found.samples] == [3, 4, 5]
    other = load_dataset("cifar10-c", tmp_path, split="fog/3")
    assert dataset_identity(found)["digest"] != dataset_identity(other)["digest"]
    again = pickle.loads(pickle.dumps(found))
    assert dataset_identity(again) == dataset_identity(found)


def test_what_a_corrupted_set_refuses(tmp_path):
    with pytest.raises(
        ValueError, match=r"a corruption and a severity from 1 to 5, such as 'gaussian_noise/1', .* got 'fog'"
    ):
        load_dataset("cifar100-c", tmp_path, split="fog")
    with pytest.raises(
        FileNotFoundError, match=r"no fog\.npy and labels\.npy in .* Expected below the root: CIFAR-100-C/"
    ):
        load_dataset("cifar100-c", tmp_path, split="fog/1")
    corrupted(tmp_path)
    np.save(tmp_path / "labels.npy", np.arange(4))
    with pytest.raises(ValueError, match=r"has 15 images, but labels\.npy is \(4,\)"):
        load_dataset("cifar100-c", tmp_path, split="fog/1")
    np.save(tmp_path / "fog.npy", np.zeros((5, 32, 32)))
    with pytest.raises(ValueError, match=r"must have 5 severities of images, .* but has float64 \(5, 32, 32\)"):
        load_dataset("cifar100-c", tmp_path, split="fog/1")
    corrupted(tmp_path)
    whole = (tmp_path / "fog.npy").read_bytes()
    (tmp_path / "fog.npy").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(ValueError, match="is not a NumPy array, or was cut short"):
        load_dataset("cifar100-c", tmp_path, split="fog/1")


@pytest.fixture
def batches(tmp_path, monkeypatch):
    """CIFAR-10 with three test images, whose checksums are taken for the published ones."""
    folder = tmp_path / "cifar10/cifar-10-batches-py"
    folder.mkdir(parents=True)
    data = np.arange(3, dtype=np.uint8)[:, None] + np.zeros((1, 3072), np.uint8)
    (folder / "test_batch").write_bytes(pickle.dumps({"data": data, "labels": [5, 0, 9]}))
    (folder / "batches.meta").write_bytes(pickle.dumps({"label_names": [*ENTRIES["cifar10"].names]}))
    accept(folder, monkeypatch)
    return folder


def accept(folder, monkeypatch):
    """Take the files as they are for the published ones."""

    def md5(name):
        return hashlib.md5((folder / name).read_bytes()).hexdigest()

    kind = torchvision.datasets.CIFAR10
    monkeypatch.setattr(kind, "train_list", [])
    monkeypatch.setattr(kind, "test_list", [["test_batch", md5("test_batch")]])
    monkeypatch.setattr(kind, "meta", {**kind.meta, "md5": md5("batches.meta")})


@pytest.mark.parametrize("above", [0, 1, 2])
def test_cifar(batches, published, above):
    published("cifar10", counts={"test": 3})
    root = [batches, *batches.parents][above]
    found = load_dataset("cifar10", root)
    assert (found.labels, len(found.classes), found.split) == ([5, 0, 9], 10, "test")
    assert int(read_image(found.samples[2][0])[0, 0, 0]) == 2


def test_cifar_with_other_names(batches, published, monkeypatch):
    published("cifar10", counts={"test": 3})
    names = [*ENTRIES["cifar10"].names]
    (batches / "batches.meta").write_bytes(pickle.dumps({"label_names": ["plane", *names[1:]]}))
    accept(batches, monkeypatch)
    with pytest.raises(ValueError, match=r"class names in .* are not the published ones: 'airplane', 'plane'"):
        load_dataset("cifar10", batches)


def test_cifar_that_is_not_the_published_one(batches, tmp_path):
    with pytest.raises(ValueError, match="found 3 images of 'test', fewer than the published 10000"):
        load_dataset("cifar10", tmp_path)
    with (batches / "test_batch").open("ab") as file:
        file.write(b"more")
    with pytest.raises(FileNotFoundError, match="its checksums are not the published ones"):
        load_dataset("cifar10", tmp_path)
    with pytest.raises(FileNotFoundError, match="cifar100: no folder 'cifar-100-python' in"):
        load_dataset("cifar100", tmp_path)
