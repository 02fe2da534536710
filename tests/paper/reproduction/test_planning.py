"""What a plan says before the work: what is there, what is missing, what it costs."""

import dataclasses
import json

import pytest
from support.miniatures import coop, put, text
from support.reproductions import as_published, checkpoints, counted, done, model, plan, rows

import tpt_lib
from tpt_lib.evaluation.data import load
from tpt_lib.paper import plan_experiment, reproduce
from tpt_lib.paper.reproduction import estimate

pytestmark = pytest.mark.usefixtures("no_shape_checks")


def lines(found, word):
    return [line.strip() for line in repr(found).splitlines() if line.strip().startswith(word)]


def test_what_is_there_and_what_is_missing(root, tmp_path):
    found = plan(root, out=tmp_path / "out")
    assert lines(found, "found:") == ["found: dtd, 6 images", "found: pets, 6 images"]
    assert len(lines(found, "missing:")) == 8
    assert lines(found, "missing: eurosat")[0].endswith(
        "Wanted: eurosat/split_zhou_EuroSAT.json, eurosat/2750/AnnualCrop/*.jpg"
    )
    assert lines(found, "rows:") == ["rows: CLIP; Ensemble; TPT. Seeds 0"]
    assert lines(found, "not run:")[0] == (
        "not run: CoOp: needs a checkpoint of prompts learned on ImageNet: coop=, --coop"
    )
    assert not (tmp_path / "out").exists()
    assert json.loads(json.dumps(found.to_dict()))["missing"].keys() == {one.label for one in found.missing}


def test_splits_of_one_dataset_share_a_line(tmp_path):
    (line,) = lines(plan(tmp_path, "table3", out=tmp_path), "missing:")
    assert line.startswith("missing: bongard-hoi/seen_act_seen_obj and 3 more splits: no bongard_hoi_test_")


def test_nothing_to_run(tmp_path):
    with pytest.raises(ValueError, match="nothing to run of table1: none of its datasets was found"):
        reproduce(plan(tmp_path, "table1"))
    with pytest.raises(ValueError, match="nothing to run of rlcf: none of its rows can be run with what was given"):
        reproduce(plan(tmp_path, "rlcf", followers=True))


def test_what_the_rows_need(root, tmp_path):
    files = checkpoints(tmp_path)
    found = plan(root, "table6", out=tmp_path, coop=files["coop"][:2], cocoop=files["cocoop"])
    assert found.skipped == {"CoOp": "needs 3 checkpoints of prompts learned on ImageNet: coop=, --coop, but got 2"}
    assert plan(root, "rlcf", out=tmp_path, followers=True).skipped == {
        "RLCF, reward ViT-L/14, 3 steps": "needs a second CLIP: reward=, --reward"
    }
    for options, says in {
        "cocoop": "has no network of CoCoOp, so it is not a checkpoint for cocoop; pass it as coop",
        "coop": "has a network of CoCoOp, so it is not a checkpoint for coop; pass it as cocoop",
    }.items():
        other = files["coop" if options == "cocoop" else "cocoop"]
        with pytest.raises(ValueError, match=says):
            plan(root, "table6", out=tmp_path, **{options: other})
    with pytest.raises(ValueError, match="none of the rows uses coop or reward; leave it out"):
        plan(root, "table4", out=tmp_path, coop=files["coop"], reward=model())


def test_wrong_requests(tmp_path):
    for change, says in {
        ("root", tmp_path / "none"): "is not a folder",
        ("limit", 0): "limit must be at least 1, but got 0",
        ("name", None): "name is missing; pass one of list_experiments",
    }.items():
        options = {"name": "table1", "root": tmp_path, "out": tmp_path, **dict([change])}
        with pytest.raises((ValueError, FileNotFoundError), match=says):
            plan_experiment(model(), options.pop("name"), options.pop("root"), **options)


def test_a_part_of_a_dataset_is_marked_and_not_compared(root, tmp_path, monkeypatch):
    found = plan(root, "table2", out=tmp_path, limit=3)
    assert lines(found, "found: dtd") == ["found: dtd, 3 images (3 of 6 images: not compared)"]
    done_rows = rows(reproduce(found, progress=False))
    assert {row["verdict"] for row in done_rows.values()} == {"not compared: 3 of 6 images"}
    assert plan(root, "table2", out=tmp_path).estimate.images == 12  # the whole datasets have places of their own
    as_published(monkeypatch)
    monkeypatch.setitem(load.ENTRIES, "dtd", dataclasses.replace(load.ENTRIES["dtd"], counts={"test": 9}))
    assert [one.label for one in plan(root, out=tmp_path).missing].count("dtd") == 1
    part = plan(root, out=tmp_path, subset=True).sources["dtd"]
    assert part.part.startswith("an incomplete copy of 6 of ")
    assert plan(root, out=tmp_path, subset=True).sources["pets"].part == ""


def test_another_split_is_not_compared(root, tmp_path, monkeypatch):
    from tpt_lib.paper.reproduction import sources

    load_dataset = sources.load_dataset
    original = lambda *args, **options: dataclasses.replace(load_dataset(*args, **options), split="original-test")  # noqa: E731
    monkeypatch.setattr(sources, "load_dataset", original)
    assert plan(root, out=tmp_path).sources["pets"].part == "the original split of 6 of 3669 images, not the paper's"


@pytest.mark.slow
def test_the_estimate_counts_what_is_left_and_multiplies_what_was_measured(root, tmp_path, monkeypatch):
    monkeypatch.setattr(estimate, "encoding_cost", lambda *_: estimate.EncodingCost(seconds=2.0, stored=1000))
    monkeypatch.setattr(estimate, "step_cost", lambda _, classes, views: 0.5 * len(classes))
    whole = plan(root, "table6", out=tmp_path).estimate
    assert whole == estimate.Estimate(
        images=36, encoding=72.0, rows=48, tuning=2 * 18 * 1.5, stored=36_000, run_files=48_000
    )
    done(root, tmp_path)
    left = plan(root, "table6", out=tmp_path).estimate
    assert (left.images, left.rows, left.tuning) == (24, 24, 2 * 12 * 1.5)
    steps = plan(root, "figure5b", out=tmp_path).estimate
    assert steps.tuning == 6 * 1.5 * (1 + 2 + 3 + 4)


def test_the_cost_is_measured_on_an_image_that_can_be_read(tmp_path):
    from tpt_lib.paper.reproduction.cost import encoding_cost, step_cost

    (tmp_path / "broken.jpg").write_bytes(b"no picture")
    cost = encoding_cost(model(), tmp_path / "broken.jpg", "crop", 4)
    assert (cost.seconds > 0, cost.stored) == (True, 4 * 16 * 2)
    assert step_cost(model(), ["cat", "dog"], 8) > 0


@pytest.mark.slow
def test_hostile_names_are_names(tmp_path, monkeypatch):
    as_published(monkeypatch)
    entry = load.ENTRIES["dtd"]
    splits = coop(entry, tmp_path / "dtd", "images")
    hostile = ["<script>alert(1)</script>", "{0.__class__}", "../../etc/passwd\n'; --"]
    splits = {part: [[path, k, hostile[k]] for path, k, _ in items] for part, items in splits.items()}
    text(tmp_path / "dtd" / entry.split_file, splits)
    put(tmp_path / "imagenet-a/<img src=x onerror=alert(1)>/1.jpg")
    found = done(tmp_path, tmp_path / "out", own=dataclasses.replace(model(), name="<b>ViT-B-16"))
    page = found.page.read_text()
    assert "<b>ViT" not in page
    assert "&lt;b&gt;ViT-B-16" in page
    assert found.page.parent.name == "b-vit-b-16"
    assert rows(found)["TPT", "dtd"]["n"] == 6
    report = tpt_lib.Report.read(tmp_path.rglob("*.jsonl"))
    assert report.runs[0].header["classes"] == hostile


@pytest.mark.slow
def test_a_store_of_another_model_of_that_name_is_refused(root, finished, tmp_path, monkeypatch):
    from support.zoo import fresh

    other = dataclasses.replace(fresh("open_clip-resnet"), name=model().name)
    counts = counted(monkeypatch)
    with pytest.raises(ValueError, match="has a store that differs"):
        done(root, tmp_path, own=other)
    assert counts["encoded"] == 0
