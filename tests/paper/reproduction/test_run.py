"""Whole reproductions on miniature datasets: resumed without encoding again, compared only where they may be."""

import json
import shutil

import pytest
import torch
from support.kills import killed
from support.reproductions import as_published, checkpoints, counted, done, model, plan, rows, write

import tpt_lib
from tpt_lib.paper import reproduce
from tpt_lib.paper.reproduction import run

pytestmark = pytest.mark.usefixtures("no_shape_checks")  # which take most of the time


def test_a_table_is_what_evaluate_finds_row_by_row(root, finished, tmp_path):
    found = rows(finished)
    assert {dataset for _, dataset in found} == {"dtd", "pets"}  # no average without all of its datasets
    data = tpt_lib.load_dataset("dtd", root)
    methods = {"CLIP": "zero_shot", "Ensemble": "template_ensemble", "TPT": "tpt"}
    for row in tpt_lib.evaluate(model(), data, methods, out=tmp_path / "own.jsonl", progress=False).rows():
        own = found[row["method"], "dtd"]
        assert (own["ours"], own["n"], own["seeds"]) == (pytest.approx(row["top1"]), 6, 1)
        assert own["paper"] == tpt_lib.paper.paper_accuracy("dtd", row["method"], model="ViT-B/16")
        inside = own["low"] - 0.005 <= own["paper"] <= own["high"] + 0.005
        assert own["verdict"] == ("within" if inside else "outside")
    assert {own["verdict"] for own in found.values()} == {"within", "outside"}


def test_a_second_call_computes_nothing_and_says_the_same(root, finished, tmp_path, monkeypatch):
    counts = counted(monkeypatch)
    again = plan(root, out=tmp_path)
    assert (again.estimate.images, again.estimate.rows, again.estimate.bytes) == (0, 0, 0)
    assert reproduce(again, progress=False).rows() == finished.rows()
    assert counts == {"encoded": 0, "rows": 0}


@pytest.mark.slow
def test_tables_share_stores_and_runs(root, finished, tmp_path, monkeypatch):
    counts = counted(monkeypatch)
    found = rows(done(root, tmp_path, "table6"))
    assert counts == {"encoded": 2 * 2 * 6, "rows": 2 * 2 * 6}  # two more seeds of TPT on two datasets
    assert [(found[name, "dtd"]["seeds"], found[name, "dtd"]["std"] is None) for name in ("CLIP", "TPT")] == [
        (1, True),
        (3, False),
    ]
    assert found["TPT", "dtd"]["paper"] == 46.79


@pytest.mark.slow
def test_a_killed_run_resumes_without_encoding_again(root, finished_once, tmp_path, monkeypatch):
    file = tmp_path / "vit-b-16-openai/paper/dtd/tpt-seed0.jsonl"
    killed(file, lambda: done(root, tmp_path), 100, 3, 0.0)
    assert len(file.read_bytes().splitlines()) > 2
    counts = counted(monkeypatch)
    left = plan(root, out=tmp_path).estimate
    resumed = done(root, tmp_path)
    assert counts == {"encoded": left.images, "rows": left.rows}
    assert left.images <= 6  # those of pets: dtd was complete
    assert 0 < left.rows < 36
    assert resumed.rows() == finished_once.rows()


def test_a_run_stopped_while_encoding_keeps_what_it_has(root, tmp_path, monkeypatch):
    evaluate = run.evaluate

    def stopped(*args, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr(run, "evaluate", stopped)
    with pytest.raises(KeyboardInterrupt):
        done(root, tmp_path)
    monkeypatch.setattr(run, "evaluate", evaluate)
    counts = counted(monkeypatch)
    assert len(done(root, tmp_path).results) == 6
    assert counts["encoded"] == 6  # the second dataset only


@pytest.mark.slow
def test_learned_prompts_and_their_ensembles(root, tmp_path):
    files = checkpoints(tmp_path)
    found = rows(done(root, tmp_path, "table7", **files, own=model("RN50")))
    assert len(found) == 12
    assert {dataset for _, dataset in found} == {"imagenet-a"}
    data = tpt_lib.load_dataset("imagenet-a", root)
    one, two, three = (
        tpt_lib.class_prompts(model(), data.classes, context=tpt_lib.load_prompt(file)) for file in files["coop"]
    )
    own = {"CoOp": ("zero_shot", one), "TPT + CoOp": ("tpt", one)}
    own["CoOp, ensemble of 3 seeds"] = (tpt_lib.methods.prompt_ensemble_predict, [one, two, three])
    for row in tpt_lib.evaluate(model(), data, own, out=tmp_path / "own.jsonl", progress=False).rows():
        assert found[row["method"], "imagenet-a"]["ours"] == pytest.approx(row["top1"])


@pytest.mark.slow
def test_three_checkpoints_are_three_trials(root, tmp_path):
    files = checkpoints(tmp_path)
    found = rows(done(root, tmp_path, "table5", coop=files["coop"], own=model("RN50")))
    assert found["CoOp", "imagenet-a"]["seeds"] == 3
    runs = sorted(path.name for path in tmp_path.rglob("coop-*.jsonl"))
    assert runs == ["coop-seed0-checkpoint2.jsonl", "coop-seed0-checkpoint3.jsonl", "coop-seed0.jsonl"]
    with pytest.raises(ValueError, match="belongs to a run with different settings"):  # other prompts under its name
        done(root, tmp_path, "table1", coop=files["coop"][1:], own=model("RN50"))


@pytest.mark.slow
def test_bongard_problems(tmp_path):
    from support.miniatures import bongard

    bongard(tmp_path)
    found = rows(done(tmp_path, tmp_path / "out", "table3", own=model("RN50")))
    row = found["TPT", "bongard-hoi/seen_act_seen_obj"]
    assert (row["n"], row["paper"], row["verdict"]) == (6, 66.39, "within")  # identical pictures: half are right


@pytest.mark.slow
def test_fewer_views_come_from_the_largest_store(root, tmp_path):
    found = done(root, tmp_path, "figure5a")
    assert [path.name for path in tmp_path.rglob("stores/*")] == ["imagenet-a-crop-128"]
    headers = [json.loads(path.read_text().splitlines()[0]) for path in sorted(tmp_path.rglob("*views*.jsonl"))]
    assert sorted(one["settings"]["views"]["n_views"] for one in headers) == [8, 16, 32, 128]
    assert rows(found)["TPT (8 views)", "imagenet-a"]["verdict"] == ""  # the figure's numbers are not published


@pytest.mark.slow
def test_followers_have_their_authors_settings_and_views(root, tmp_path):
    found = rows(done(root, tmp_path, "c-tpt", followers=True))
    assert sorted(path.name for path in tmp_path.rglob("stores/*")) == [
        "dtd-augmix-64",
        "imagenet-a-augmix-64",
        "pets-augmix-64",
    ]
    headers = {path.parent.name: json.loads(path.read_text().splitlines()[0]) for path in tmp_path.rglob("*.jsonl")}
    assert [headers[name]["settings"]["preset"] for name in ("dtd", "imagenet-a")] == ["dtd", "imagenet-a"]
    assert "weight=20.0" in headers["imagenet-a"]["settings"]["methods"]["C-TPT"]
    assert "weight" not in headers["dtd"]["settings"]["methods"]["C-TPT"]
    assert {dataset for _, dataset in found} == {"dtd", "pets", "imagenet-a"}


@pytest.mark.slow
def test_an_accelerator_tunes_eight_images_together(root, finished, tmp_path, monkeypatch):
    given = []
    evaluate = run.evaluate
    monkeypatch.setattr(run, "evaluate", lambda *args, **options: given.append(options) or evaluate(*args, **options))
    monkeypatch.setattr(run, "device_of", lambda _: torch.device("cuda"))
    assert done(root, tmp_path).rows() == finished.rows()
    assert {options["batch_size"] for options in given} == {8}


@pytest.mark.slow
def test_the_reward_is_stored_with_the_model(root, tmp_path):
    asked = {"followers": True, "reward": model("ViT-L-14/openai")}
    assert plan(root, "rlcf", out=tmp_path, **asked).estimate.images == 2 * 18  # by both models
    found = done(root, tmp_path, "rlcf", **asked)
    assert {path.name for path in tmp_path.rglob("stores/*/*") if path.is_dir()} == {"model", "reward"}
    header = json.loads(next(tmp_path.rglob("rlcf*.jsonl")).read_text().splitlines()[0])
    assert "steps=3" in next(iter(header["settings"]["methods"].values()))  # as published, not the preset's 5
    assert len(found.rows()) == 3


def test_too_little_disk_is_said_before_the_work(root, tmp_path, monkeypatch):
    usage = shutil.disk_usage(tmp_path)._replace(free=10)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)
    little = plan(root, out=tmp_path / "out")
    assert "10 bytes are free" in repr(little)
    with pytest.raises(
        OSError, match=r"reproduce: 60\.6 kB are needed, but the disk of .* has 10 bytes free; make room"
    ):
        reproduce(little)
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_pictures_that_cannot_be_read_are_not_compared(tmp_path, monkeypatch):
    as_published(monkeypatch)
    write(tmp_path)
    (tmp_path / "dtd/images/test_0/0.jpg").write_bytes(b"no picture")
    found = rows(done(tmp_path, tmp_path / "out"))
    assert found["CLIP", "dtd"]["verdict"] == "not compared: 1 images could not be used"
    assert found["CLIP", "dtd"]["n"] == 5
    assert found["CLIP", "pets"]["verdict"] in ("within", "outside")


def test_only_the_first_rank_writes_the_page(root, tmp_path, monkeypatch):
    monkeypatch.setattr(run, "share", lambda: (1, 2))
    done(root, tmp_path, "table4", own=model("RN50"))
    assert not [*tmp_path.rglob("*.html")]
