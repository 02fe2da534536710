"""The commands of feature stores."""

import json

import pytest
from support.command_line import ran, tiny
from support.stores import damage, files

import tpt_lib


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    data = tpt_lib.load_tiny_drawings("noto-v1").take(range(6))
    return tpt_lib.encode_dataset(tiny(), data, tmp_path_factory.mktemp("cli") / "store", n_views=2, shard_size=4).path


def test_encode_and_evaluate(capsys, tmp_path):
    out = tmp_path / "store"
    line = f"encode --dataset noto-v1 --limit 3 --n-views 2 --seeds 0 1 --dtype float32 --out {out}"
    code, said, _ = ran(capsys, line)
    assert code == 0
    assert "3 samples of 430 classes of noto-v1/3 of test" in said
    assert "model, seed 1: tiny x 192, float32" in said
    store = tpt_lib.FeatureStore.open(out)
    assert store.seeds == (0, 1)
    code, said, _ = ran(capsys, f"evaluate --dataset {out} --methods zero_shot --out {tmp_path / 'run.jsonl'} --json")
    assert (code, json.loads(said)["rows"][0]["n"]) == (0, 3)


def test_info(capsys, folder):
    code, said, _ = ran(capsys, f"store info {folder} --json")
    found = json.loads(said)
    assert code == 0
    assert (found["samples"], found["models"][0]["files"], found["models"][0]["missing"]) == (6, 2, 0)
    assert found["views"]["n_views"] == 2
    assert ran(capsys, f"store info {folder}")[1].rstrip().endswith("complete")


def test_verify_finds_damage_and_encode_mends_it(capsys, folder):
    assert ran(capsys, f"store verify {folder}")[:2] == (0, f"{folder}: no damaged files\n")
    file = files(tpt_lib.FeatureStore.open(folder))[1]
    whole = file.read_bytes()
    damage(file)
    code, said, _ = ran(capsys, f"store verify {folder}")
    file.write_bytes(whole)
    assert code == 1
    assert "1 damaged files" in said
    assert "model, seed 0: samples 4 to 5" in said


def test_merge(capsys, folder, tmp_path):
    code, said, _ = ran(capsys, f"store merge {folder} {folder} --out {tmp_path / 'both'}")
    assert code == 0
    assert "6 samples" in said
    assert (
        tpt_lib.FeatureStore.open(tmp_path / "both")
        .features([5])
        .equal(tpt_lib.FeatureStore.open(folder).features([5]))
    )


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("store merge {0}", "needs --out"),
        ("store info {0} {0}", "takes one store, but got 2"),
        ("store info {0} --out x", "--out: for merge"),
        ("store info nowhere", "no feature store at 'nowhere'"),
        ("encode --dataset {0} --out x", "takes a dataset of images"),
        ("encode --dataset tiny-bongard --out x", "takes a dataset of images"),
        ("encode --out x", "--dataset is missing"),
        ("encode --dataset noto-v1", "--out"),
        ("evaluate --dataset {0} --split val", "--split: for datasets"),
    ],
)
def test_what_makes_no_sense_is_refused(capsys, folder, tmp_path, monkeypatch, line, message):
    monkeypatch.chdir(tmp_path)
    code, _, errors = ran(capsys, line.format(folder))
    assert code == 2
    assert message in errors[-1]
    assert list(tmp_path.iterdir()) == []
