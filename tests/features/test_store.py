"""Reading stores. The expected features are those that ``encode_views`` gives for the same pictures."""

import json
import pickle

import numpy as np
import pytest
import torch
from support.noise_runs import Noise, model
from support.rewards import second_clip
from support.stores import VIEWS, change_index, damage, data, encoded, files

import tpt_lib
from tpt_lib import FeatureStore, augment_views, encode_views
from tpt_lib.features import shards
from tpt_lib.features import store as store_module
from tpt_lib.features.whole_file import DamagedFileError


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return encoded(tmp_path_factory.mktemp("stores") / "store", seeds=(3, 1))


def from_pixels(sample, seed, n_views=VIEWS):
    image, _ = Noise()[sample]
    return encode_views(model(), augment_views(image, model().image_spec, n_views=n_views, seed=seed))


def test_a_seed_whose_files_are_missing_is_refused(tmp_path):
    made = encoded(tmp_path / "store", seeds=(0, 1))
    files(made, seed=1)[0].unlink()
    with pytest.raises(
        ValueError, match=r"1 of its files for model 'model' and seed 1 are missing; call encode_dataset"
    ):
        FeatureStore.open(made.path).seed(1)


def test_a_sample_is_its_features_and_label(store):
    for i in (0, 4, 5, 11, -1, -12):
        features, label = store[i]
        assert features.equal(from_pixels(i % 12, 3))
        assert label == i % 12 % 6
    assert len(store) == 12
    assert [label for _, label in store] == [i % 6 for i in range(12)]


def test_a_file_is_let_go_once_its_last_sample_is_read(store):
    """Mapped pages cost time, and a reader in order does not come back."""
    opened = FeatureStore.open(store.path)
    size = opened.index["shard_size"]
    opened.features(range(size - 1))
    assert list(opened._shards.opened) == [0]
    opened.features(range(size))
    assert list(opened._shards.opened) == []


def test_seeds_and_first_views(store):
    assert store.seeds == (3, 1)
    assert store.view_seed == 3
    assert store.seed(1)[7][0].equal(from_pixels(7, 1))
    torch.testing.assert_close(store.first_views(2)[7][0], from_pixels(7, 3, n_views=2))  # encoded in a batch of 2
    assert store.seed(1).first_views(3).seed(3)[7][0].equal(from_pixels(7, 3)[:3])
    assert store.first_views(1)[7][0].equal(from_pixels(7, 3)[:1])
    assert store.first_views(VIEWS)[7][0].equal(store[7][0])


def test_features_of_many_in_any_order(store):
    order = [11, 3, 4, 4, 5, 0, 6, 7, 9, 8]
    assert store.features(order).equal(torch.stack([store[i][0] for i in order]))
    assert store.features(torch.tensor(order)).shape == (10, VIEWS, store.entry["width"])


def test_a_selection_is_a_store(store):
    some = store.select([9, 2, -1])
    assert len(some) == 3
    assert some[0][0].equal(store[9][0])
    assert some.labels.tolist() == [3, 2, 5]
    again = some.select(torch.tensor([2, 0]))
    assert again[0][0].equal(store[11][0])
    assert again.labels.tolist() == [5, 3]
    assert some.data_identity["digest"] != store.data_identity["digest"] != again.data_identity["digest"]
    assert some.data_identity == store.seed(1).select([9, 2, 11]).data_identity


def test_a_loader_gives_batches(store):
    order = [9, 2, 11, 0, 1, 3, 4, 5, 6, 7]
    batches = list(store.select(order).loader(batch_size=4))
    assert [tuple(features.shape[:2]) for features, _ in batches] == [(4, VIEWS), (4, VIEWS), (2, VIEWS)]
    assert torch.cat([features for features, _ in batches]).equal(store.features(order))
    labels = torch.cat([labels for _, labels in batches])
    assert labels.dtype == store.labels.dtype == torch.int64
    assert labels.tolist() == [i % 6 for i in order]


def test_how_a_loader_is_made(store):
    loader = store.loader()
    assert (loader.batch_size, loader.num_workers) == (64, 0)
    assert isinstance(loader.sampler, torch.utils.data.SequentialSampler)
    loader = store.loader(shuffle=True, num_workers=2)
    assert loader.num_workers == 2
    assert isinstance(loader.sampler, torch.utils.data.RandomSampler)


def test_a_selection_of_nothing(store):
    none = store.select([])
    assert len(none) == 0
    assert none.labels.tolist() == []
    assert none.features([]).shape == (0, VIEWS, 16)


@pytest.mark.usefixtures("no_shape_checks")
def test_indices_may_be_of_any_type_of_integers(store):
    places = store._places([np.int64(3), torch.tensor(-1)])
    assert places == [3, 11]
    assert {type(place) for place in places} == {int}


def test_few_files_are_open_at_the_same_time(store, monkeypatch):
    monkeypatch.setattr(shards, "KEPT_OPEN", 2)
    shards_of = FeatureStore.open(str(store.path))._shards
    for sample, opened in ((0, [0]), (1, [0]), (5, [0, 1]), (10, [2])):
        shards_of.read([sample], VIEWS)
        assert list(shards_of.opened) == opened


def test_several_models(tmp_path):
    encoded(tmp_path / "store", Noise(2), seeds=(0, 1), n_views=2)
    options = {"name": "reward", "seeds": (1, 2), "n_views": 2, "shard_size": 5}
    second = tpt_lib.encode_dataset(second_clip(), data(Noise(2)), tmp_path / "store", **options)
    first = FeatureStore.open(tmp_path / "store")
    assert (first.model, first.view_seed, first[0][0].shape) == ("model", 0, (2, 16))
    other = first.of_model("reward")
    assert (other.model, other.view_seed, other[0][0].shape) == ("reward", 1, (2, 24))
    assert other.seed(2).of_model("reward").view_seed == 2
    assert other.seed(2).of_model("model").view_seed == 0
    assert "<td>model, reward</td>" in other._repr_html_()
    files(second, seed=1, name="reward")[0].unlink()
    with pytest.raises(ValueError, match="1 of its files for model 'reward' and seed 1 are missing"):
        first.of_model("reward")


def test_a_store_without_its_labels_is_refused(tmp_path):
    made = encoded(tmp_path / "store", Noise(2))
    (made.path / "columns.safetensors").unlink()
    with pytest.raises(ValueError, match="is not complete"):
        FeatureStore.open(made.path)


def test_a_loader_maps_the_labels_once(store, monkeypatch):
    mapped, real = [], store_module.map_tensors
    monkeypatch.setattr(
        store_module, "map_tensors", lambda path, *names: mapped.append(path.name) or real(path, *names)
    )
    list(FeatureStore.open(store.path).loader(batch_size=4))
    assert mapped.count("columns.safetensors") == 1


def test_a_store_of_half_precision_gives_floats(tmp_path):
    half = encoded(tmp_path / "half", Noise(2), dtype="float16")
    features = half[1][0]
    assert features.dtype == torch.float32
    assert features.equal(from_pixels(1, 0).half().float())
    assert half._shards.shard(0).features.dtype == torch.float16


def test_only_what_is_used_is_read(store):
    fresh = FeatureStore.open(store.path)
    assert not fresh._shards.opened
    fresh[6]
    assert list(fresh._shards.opened) == [1]


def test_a_store_can_be_pickled_after_use(store):
    some = store.select([4, 8])
    some[0]
    copy = pickle.loads(pickle.dumps(some))
    assert copy[1][0].equal(some[1][0])
    assert not pickle.loads(pickle.dumps(some))._shards.opened


def test_it_knows_its_dataset(store):
    assert (store.name, store.split, store.classes, store.template) == (
        "noise",
        "test",
        ("cat", "dog", "red panda", "kite", "hen", "ant"),
        "a photo of a {}.",
    )
    assert store.root is None
    assert store.sample_path(0) is None
    assert store.models == ("model",)
    assert store.errors == {}
    assert "12 samples of 6 classes, 4 views x" in repr(store)


def test_paths_are_kept(tmp_path):
    from torchvision.utils import save_image

    for i in range(3):
        save_image(torch.rand(3, 8, 8), tmp_path / f"é{i}.png")
    images = tpt_lib.evaluation.ImageFiles([tmp_path / f"é{i}.png" for i in range(3)], [0, 1, 2])
    data = tpt_lib.EvalSet("files", images, ("a", "b", "c"), root=str(tmp_path))
    store = tpt_lib.encode_dataset(model(), data, tmp_path / "store", n_views=1, shard_size=2)
    assert [store.sample_path(i) for i in range(3)] == ["é0.png", "é1.png", "é2.png"]
    assert store.select([2]).sample_path(0) == "é2.png"


@pytest.mark.parametrize(
    ("call", "kind", "message"),
    [
        (lambda s: s[12], IndexError, "index 12 is out of range for 12 samples"),
        (lambda s: s.select([0, 40]), IndexError, "40"),
        (lambda s: s.select([True, False]), TypeError, "nonzero"),
        (lambda s: s.features(torch.tensor([0.5])), TypeError, "must be an int, but got 0.5"),
        (lambda s: s.first_views(5), ValueError, "4 views .* but got 5"),
        (lambda s: s.first_views(0), ValueError, "but got 0"),
        (lambda s: s.seed(2), ValueError, r"seeds \[3, 1\] are stored, but not of 2; .*seeds=\[2\] adds"),
        (lambda s: s.of_model("reward"), ValueError, r"\['model'\], but not of 'reward'"),
    ],
)
def test_what_is_not_there_is_said(store, call, kind, message):
    with pytest.raises(kind, match=message):
        call(store)


def test_a_sample_without_features_is_not_given_as_zeros(tmp_path):
    store = encoded(tmp_path / "store", Noise(bad=[6]))
    assert list(store.errors) == [6]
    assert "no/such/file6.png" in store.errors[6]
    assert store.error_of(6)
    assert not store.error_of(5)
    with pytest.raises(ValueError, match=r"sample 6 .*no/such/file6\.png.*store\.select"):
        store.features([5, 6])
    good = store.select([i for i in range(len(store)) if i not in store.errors])
    assert len(good.features(range(11))) == 11
    assert good.errors == {}


def test_damage_is_found_and_named(tmp_path):
    store = encoded(tmp_path / "store")
    assert store.verify() == []
    damage(files(store)[1])
    (found,) = store.verify()
    assert found.startswith("samples 5 to 9: ")
    assert "000001.safetensors" in found
    assert "checksum" in found
    assert store.select([0, 11]).verify() == []
    assert store.select([7, 8]).verify() == [found]
    (store.path / "columns.safetensors").write_bytes(b"")
    assert [one.split(":")[0] for one in store.verify()] == ["samples 5 to 9", "labels and paths"]


def test_a_file_that_is_cut_short_names_its_samples(tmp_path):
    store = encoded(tmp_path / "store")
    files(store)[2].write_bytes(files(store)[2].read_bytes()[:-9])
    with pytest.raises(DamagedFileError, match=r"samples 10 to 11; encode_dataset with the same settings repairs it"):
        store[10]


def test_what_is_not_a_store_is_refused(tmp_path):
    with pytest.raises(FileNotFoundError, match="encode_dataset makes one"):
        FeatureStore.open(tmp_path)
    (tmp_path / "index.json").write_text("[1, 2]")
    with pytest.raises(ValueError, match="not the index of a feature store"):
        FeatureStore.open(tmp_path)
    (tmp_path / "index.json").write_text('{"kind": ')
    with pytest.raises(ValueError, match=r"line 1.*Restore it from a copy"):
        FeatureStore.open(tmp_path)


def test_an_unfinished_store_and_one_of_a_newer_version_are_refused(tmp_path):
    store = encoded(tmp_path / "store")
    files(store)[1].unlink()
    with pytest.raises(ValueError, match="not complete: 1 of its files"):
        FeatureStore.open(store.path)
    change_index(store.path, format=2, version="9.1")
    with pytest.raises(ValueError, match=r"format 2, of tpt_lib 9\.1; this version reads format 1\. Upgrade"):
        FeatureStore.open(store.path)
    index = json.loads((store.path / "index.json").read_text())
    del index["views"]
    (store.path / "index.json").write_text(json.dumps({**index, "format": 1}))
    with pytest.raises(ValueError, match="lacks views"):
        FeatureStore.open(store.path)


def test_how_a_notebook_shows_it(store):
    shown = store._repr_html_()
    for cell in ("noise/test", "12 of 6 classes", f"{VIEWS} of seed 3; stored seeds: 3, 1", str(store.path)):
        assert f"<td>{cell}</td>" in shown
