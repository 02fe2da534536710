"""Filling stores: killed, damaged, by several processes, and with settings that do not fit what is there."""

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections import namedtuple

import pytest
import torch
from support.noise_runs import Noise, OwnClip, environment
from support.rewards import second_clip
from support.stores import change_index, contents, damage, data, encoded, files
from support.zoo import fresh

from tpt_lib import FeatureStore, encode_dataset
from tpt_lib.evaluation import merge_stores
from tpt_lib.evaluation.run import encode_dataset as module
from tpt_lib.evaluation.run import encode_work


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    return encoded(tmp_path_factory.mktemp("stores") / "whole", seeds=(0, 1))


@pytest.fixture
def copy(whole, tmp_path):
    shutil.copytree(whole.path, tmp_path / "store")
    return FeatureStore.open(tmp_path / "store")


def encoding(monkeypatch):
    """Count the images that are encoded from here on."""
    seen, real = [], encode_work.encode_views
    monkeypatch.setattr(encode_work, "encode_views", lambda *args: seen.append(1) or real(*args))
    return seen


def test_a_complete_store_is_only_read(copy, monkeypatch):
    before, seen = contents(copy.path), encoding(monkeypatch)
    encoded(copy.path, seeds=(0, 1))
    assert contents(copy.path) == before
    assert not seen


@pytest.mark.parametrize("harm", [damage, lambda file: file.write_bytes(b"short"), lambda file: file.unlink()])
def test_a_damaged_file_is_mended_and_no_other_is_touched(copy, whole, monkeypatch, harm):
    harm(files(copy, seed=1)[1])
    seen = encoding(monkeypatch)
    encoded(copy.path, seeds=(0, 1))
    assert len(seen) == 5
    assert contents(copy.path) == contents(whole.path)


def test_damaged_columns_are_mended(copy, whole):
    damage(copy.path / "columns.safetensors")
    encoded(copy.path, seeds=(0, 1))
    assert contents(copy.path) == contents(whole.path)


def test_seeds_are_added(whole, tmp_path, monkeypatch):
    first = encoded(tmp_path / "store", seeds=(0,))
    seen = encoding(monkeypatch)
    second = encoded(tmp_path / "store", seeds=(1,))
    assert len(seen) == 12
    assert (first.seeds, second.seeds, second.view_seed) == ((0,), (0, 1), 1)
    assert contents(second.path) == contents(whole.path)


def test_a_second_model_is_added_under_its_name(copy):
    second = encode_dataset(second_clip(), data(), copy.path, name="reward", n_views=4, shard_size=5)
    assert second.models == ("model", "reward")
    assert second.model == "reward"
    assert second[3][0].shape == (4, 24)
    assert FeatureStore.open(copy.path)[3][0].equal(copy[3][0])
    assert second.of_model("model").seed(1)[3][0].equal(copy.seed(1)[3][0])


def test_errors_are_recorded_and_those_that_may_pass_are_tried_again(tmp_path, monkeypatch):
    store = encoded(tmp_path / "store", Noise(bad=[6, 7]))
    assert list(store.errors) == [6, 7]
    assert store.labels[6] == 0
    seen = encoding(monkeypatch)
    mended = encoded(tmp_path / "store", Noise(bad=[7]))
    assert list(mended.errors) == [7]
    assert len(seen) == 4
    assert mended[6][0].norm(dim=-1).allclose(torch.ones(4))
    with pytest.raises(ValueError, match=r"sample 7 cannot be used: .*file7\.png"):
        encoded(tmp_path / "store", Noise(bad=[7]), strict=True)


def test_refused_images_are_not_tried_again(tmp_path, monkeypatch):
    samples = [(torch.rand(3, 8, 8), 0), (torch.full((3, 8, 8), torch.nan), 1), (torch.rand(3, 8, 8), 1)]
    store = encoded(tmp_path / "store", samples)
    assert "ImageError" in store.errors[1]
    seen = encoding(monkeypatch)
    encoded(tmp_path / "store", samples)
    assert not seen


def test_features_that_are_not_finite_are_an_error(tmp_path, monkeypatch):
    monkeypatch.setattr(encode_work, "encode_views", lambda *_: torch.full((4, 16), torch.nan))
    store = encoded(tmp_path / "store", Noise(2))
    assert store.errors == dict.fromkeys(range(2), "ValueError: the features are not all finite")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"samples": Noise(11)}, r"n is 12 there and 11 here"),
        ({"samples": Noise(bad=[0])}, None),  # it may be repaired
        ({"samples": [(torch.rand(3, 8, 8), 0) for _ in range(12)]}, r"data\.digest is"),
        ({"n_views": 5}, r"views\.n_views is 4 there and 5 here"),
        ({"recipe": "augmix"}, r"views\.recipe is 'crop' there and 'augmix' here"),
        ({"dtype": "float16"}, r"model\.dtype is 'float32' there and 'float16' here"),
        ({"shard_size": 6}, r"shard_size is 5 there and 6 here"),
        ({"model": "second"}, r"model\.image_tower is .*name='reward'"),
    ],
)
def test_other_settings_are_refused_and_nothing_is_changed(copy, change, message):
    before = contents(copy.path)
    if change.get("model"):
        change = {"model": fresh("open_clip-vit")}
        with torch.no_grad():
            next(change["model"].module.visual.parameters()).add_(0.1)
    if message is None:
        encoded(copy.path, **change)
    else:
        with pytest.raises(ValueError, match=message):
            encoded(copy.path, **change)
    assert contents(copy.path) == before


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"seeds": ()}, "seeds must not be empty"),
        ({"seeds": (1, 1)}, r"seeds must differ, but got \[1, 1\]"),
        ({"dtype": "float64"}, "float16, float32, but got 'float64'"),
        ({"keep": ("tokens",)}, "keep must be"),
        ({"name": "../up"}, "made of letters"),
        ({"shard_size": 0}, "at least 1, but got 0"),
        ({"num_workers": -1}, "0 or more, but got -1"),
        ({"backend": "mpi"}, "local, ray, but got 'mpi'"),
        ({"n_views": 0}, "n_views"),
    ],
)
@pytest.mark.usefixtures("no_shape_checks")
def test_bad_options_are_refused_before_the_work(tmp_path, options, message):
    with pytest.raises(ValueError, match=message):
        encoded(tmp_path / "store", **options)
    assert not (tmp_path / "store").exists()


def test_a_seed_of_augment_views_is_refused(tmp_path):
    with pytest.raises(TypeError, match="seeds="):
        encoded(tmp_path / "store", seed=3)


def test_foreign_places_are_refused(tmp_path):
    (tmp_path / "mine.txt").write_text("precious")
    with pytest.raises(ValueError, match=r"is not a feature store and has other files, such as 'mine\.txt'"):
        encoded(tmp_path)
    with pytest.raises(ValueError, match="is a file"):
        encoded(tmp_path / "mine.txt")
    assert (tmp_path / "mine.txt").read_text() == "precious"


def test_a_newer_store_is_not_touched(copy):
    change_index(copy.path, format=7)
    before = contents(copy.path)
    with pytest.raises(ValueError, match="format 7"):
        encoded(copy.path, seeds=(5,))
    assert contents(copy.path) == before


def test_a_disk_that_is_too_small_is_found_before_the_work(tmp_path, monkeypatch):
    usage = namedtuple("usage", "total used free")(10**9, 10**9, 2000)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)
    with pytest.raises(OSError, match=r"the features need 3\.84 kB, but the disk of .* has 2 kB; make room"):
        encoded(tmp_path / "store")
    assert not (tmp_path / "store").exists()


def test_a_disk_that_fills_up_loses_nothing(tmp_path, whole, monkeypatch):
    real, calls = module.write_shard, []

    def full(*args):
        calls.append(1)
        if len(calls) == 3:
            raise OSError(28, "No space left on device")
        real(*args)

    monkeypatch.setattr(module, "write_shard", full)
    with pytest.raises(OSError, match="No space left"):
        encoded(tmp_path / "store", seeds=(0, 1))
    monkeypatch.setattr(module, "write_shard", real)
    seen = encoding(monkeypatch)
    encoded(tmp_path / "store", seeds=(0, 1))
    assert len(seen) == 24 - 10
    assert contents(tmp_path / "store") == contents(whole.path)


def test_a_model_that_cannot_be_told_from_another_cannot_resume(tmp_path):
    nameless = OwnClip()
    nameless.name = ""
    with pytest.warns(UserWarning, match="cannot be resumed"):
        encoded(tmp_path / "store", Noise(2), model=nameless)
    with pytest.raises(ValueError, match="exists and cannot be resumed"):
        encoded(tmp_path / "store", Noise(2), model=nameless)


def test_workers_give_the_same_store(whole, tmp_path):
    encoded(tmp_path / "store", seeds=(0, 1), num_workers=1)
    assert contents(tmp_path / "store") == contents(whole.path)


def test_the_size_is_said_before_the_work(tmp_path, capsys):
    encoded(tmp_path / "store", Noise(5), progress=True)
    assert "noise, 1.28 kB" in capsys.readouterr().err  # 5 x 4 x 16 x 4


def test_parts_are_merged(whole, copy, tmp_path):
    other = tmp_path / "other"
    shutil.copytree(copy.path, other)
    files(copy)[0].unlink()
    damage(files(copy, seed=1)[1])
    (other / "model" / "seed0" / "000002.safetensors").unlink()
    merged = merge_stores(tmp_path / "merged", [copy.path, other])
    assert contents(merged.path) == contents(whole.path)
    with pytest.raises(ValueError, match="not complete: 1 of its files"):
        merge_stores(tmp_path / "again", [copy.path])
    third = encoded(tmp_path / "third", n_views=5)
    with pytest.raises(ValueError, match=r"views\.n_views"):
        merge_stores(tmp_path / "mixed", [other, third.path])
    assert not (tmp_path / "mixed").exists()
    with pytest.raises(ValueError, match="nothing to merge"):
        merge_stores(tmp_path / "none", [])


def killed(folder, more, delay):
    """Encode in a forked process, and kill it a moment after so many more files have been written."""
    count = lambda: len(list(folder.rglob("0*.safetensors")))  # noqa: E731
    wanted = min(count() + more, 6)
    child = os.fork()
    if child == 0:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        encoded(folder, Noise(slow=0.004), seeds=(0, 1))
        os._exit(0)
    deadline = time.monotonic() + 30
    while count() < wanted and time.monotonic() < deadline:
        time.sleep(0.001)
    time.sleep(delay)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return count()


@pytest.mark.slow
def test_kills_at_random_moments_lose_nothing(whole, tmp_path):
    chance, seen = random.Random(0), [0]
    for _ in range(12):
        seen.append(killed(tmp_path / "store", chance.choice([0, 0, 1]), chance.uniform(0, 0.02)))
        assert seen[-1] >= seen[-2]
    assert len({*seen}) > 3, seen
    encoded(tmp_path / "store", seeds=(0, 1))
    assert contents(tmp_path / "store") == contents(whole.path)


RANKS = """
import sys, torch
torch.set_num_threads(1)
from support.stores import encoded
assert len(encoded(sys.argv[1], seeds=(0, 1))) == 12
"""


@pytest.mark.slow
def test_ranks_of_torchrun_fill_it_together(whole, tmp_path):
    (tmp_path / "job.py").write_text(RANKS)
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2", "--master-port=29715"]
    subprocess.run([*command, str(tmp_path / "job.py"), str(tmp_path / "store")], check=True, env=environment())
    assert contents(tmp_path / "store") == contents(whole.path)
