"""The command evaluate: runs, their files, and what resuming does."""

import json
import os
import re
from pathlib import Path

import pytest
from support.command_line import STYLE, ran, save, tiny

import tpt_lib
from tpt_lib.evaluation.run_lock import RunLock


def test_evaluate_resumes_and_is_reported(capsys, tmp_path):
    line = f"evaluate --dataset {STYLE} --limit 3 --n-views 4 --num-workers 0"
    code, out, errors = ran(capsys, line)
    assert (code, errors) == (0, [])
    assert "The run is in noto-v1.jsonl" in out
    before = (tmp_path / "noto-v1.jsonl").read_bytes()
    header, *rows = map(json.loads, before.splitlines())
    assert (header["methods"], len(rows)) == (["zero-shot", "TPT"], 3)
    code, out, _ = ran(capsys, f"{line} --json")  # finished: read
    assert (tmp_path / "noto-v1.jsonl").read_bytes() == before
    assert json.loads(out)["rows"] == tpt_lib.Report.read("noto-v1.jsonl").rows()
    code, _, (error,) = ran(capsys, f"{line} --seeds 0 1")
    assert code == 2
    assert "belongs to a run with different settings (seeds is [0] there and [0, 1] here)" in error
    data = tpt_lib.load_tiny_drawings(STYLE)
    prompts = tpt_lib.class_prompts(tiny(), data.classes)
    image, _ = data.samples[rows[1]["truth"]]
    views = tpt_lib.augment_views(image, tiny().image_spec, n_views=4)
    want = tpt_lib.tpt_predict(tiny(), prompts, tpt_lib.encode_views(tiny(), views))
    assert abs(rows[1]["methods"]["TPT"]["confidence"] - float(want.probs.max())) < 1e-5


def test_evaluate_a_stream(capsys, tmp_path):
    line = f"evaluate --dataset {STYLE} --limit 4 --n-views 2 --num-workers 0 --methods zero_shot tda"
    code, out, errors = ran(capsys, f"{line} --order by-class --streams per-rank --seeds 3")
    assert (code, errors) == (0, [])
    assert "TDA" in out
    header, *rows = map(json.loads, (tmp_path / "noto-v1.jsonl").read_text().splitlines())
    assert (header["methods"], header["settings"]["stream"]["order"]) == (["zero-shot", "TDA"], "by-class")
    assert [row["truth"] for row in rows] == sorted(row["truth"] for row in rows)
    code, _, (error,) = ran(capsys, f"{line} --seeds 3")
    assert code == 2
    assert "settings.stream.order is 'by-class' there and 'shuffle' here" in error


def test_evaluate_in_batches(capsys, tmp_path):
    line = f"evaluate --dataset {STYLE} --limit 4 --num-workers 0 --methods tent --batch-size"
    assert ran(capsys, f"{line} 2")[0] == 0
    header, *rows = map(json.loads, (tmp_path / "noto-v1.jsonl").read_text().splitlines())
    assert (header["settings"]["stream"]["batch_size"], len(rows)) == (2, 4)
    for size, says in (
        (4, "settings.stream.batch_size is 2 there and 4 here"),
        (3, "the last batch of 4 image(s) has 1"),
    ):
        code, _, (error,) = ran(capsys, f"{line} {size}")
        assert code == 2
        assert says in error


def test_evaluate_a_folder_with_a_bad_image(capsys, tmp_path):
    for name, count in {"cat": 4, "dog": 2}.items():
        for i in range(count):
            save(tmp_path / "animals" / name / f"{i}.png", i)
    line = "evaluate --dataset animals --methods zero-shot majority-vote --n-views 2 --num-workers 0 --out runs/a.jsonl"
    assert ran(capsys, line)[0] == 0
    header, *rows = map(json.loads, (tmp_path / "runs/a.jsonl").read_text().splitlines())
    assert (header["methods"], header["classes"]) == (["zero-shot", "majority vote"], ["cat", "dog"])
    code, _, _ = ran(capsys, f"{line.replace('a.jsonl', 'b.jsonl')} --limit 3 --classes leopard snail --recipe augmix")
    header, *rows = map(json.loads, (tmp_path / "runs/b.jsonl").read_text().splitlines())
    assert (code, [row["truth"] for row in rows], header["split"]) == (0, [0, 0, 1], "3 of test")
    assert (header["classes"], header["settings"]["views"]["recipe"]) == (["leopard", "snail"], "augmix")
    (tmp_path / "animals/dog/0.png").write_bytes(b"")
    code, out, _ = ran(capsys, line.replace("a.jsonl", "c.jsonl"))
    assert code == 1
    assert "1 row(s) with an error" in out
    code, _, errors = ran(capsys, line.replace("a.jsonl", "d.jsonl") + " --strict")
    assert code == 2
    assert "sample 4 cannot be used" in errors[-1]


def test_evaluate_tries_errors_again(capsys, tmp_path):
    files = [save(tmp_path / "animals" / name / f"{i}.png", i) for name in ("cat", "dog") for i in range(2)]
    line = "evaluate --dataset animals --methods zero-shot --n-views 2 --num-workers 0 --out a.jsonl"
    good = Path(files[0]).read_bytes()
    Path(files[0]).write_bytes(b"")
    assert ran(capsys, line)[0] == 1
    Path(files[0]).write_bytes(good)
    assert ran(capsys, line)[0] == 1  # a refused image is final
    code, out, _ = ran(capsys, f"{line} --retry-errors --json")
    assert (code, [row["errors"] for row in json.loads(out)["rows"]]) == (0, [0])
    rows = tpt_lib.evaluation.read_run("a.jsonl").rows
    assert [row["path"] for row in rows] == ["cat/0.png", "cat/1.png", "dog/0.png", "dog/1.png"]


def test_a_run_that_is_being_written_is_one_line(capsys, tmp_path):
    lock = RunLock(tmp_path / "noto-v1.jsonl")
    code, _, (error,) = ran(capsys, f"evaluate --dataset {STYLE} --limit 1 --n-views 2 --num-workers 0")
    assert code == 2
    assert f"noto-v1.jsonl' is being written by process {os.getpid()} on" in error
    lock.release()


def test_folders_of_one_name_have_files_of_their_own(capsys, tmp_path):
    for version in ("v1", "v2"):
        for i, name in enumerate(("cat", "dog")):
            save(tmp_path / version / "photos" / name / "1.png", i + (version == "v2"))
    options = "--methods zero-shot --n-views 1 --num-workers 0 --json"
    outs = [json.loads(ran(capsys, f"evaluate --dataset {v}/photos {options}")[1])["out"] for v in ("v1", "v2", "v1")]
    assert outs[0] == outs[2] != outs[1]
    assert all(re.fullmatch(r"photos-[0-9a-f]{6}\.jsonl", out) for out in outs)
    assert {file.name for file in tmp_path.glob("*.jsonl")} == set(outs)
    code, _, errors = ran(capsys, f"evaluate --dataset v2/photos {options} --out {outs[0]}")
    assert code == 2
    assert "settings.data.root is" in errors[-1]
    (tmp_path / "v1/photos").rename(tmp_path / "v1/pets")  # also a name of the paper's
    out = json.loads(ran(capsys, f"evaluate --dataset v1/pets {options}")[1])["out"]
    assert re.fullmatch(r"pets-[0-9a-f]{6}\.jsonl", out)


def test_a_table_with_the_folder_of_its_images(capsys, tmp_path):
    save(tmp_path / "photos/1.png")
    (tmp_path / "lists").mkdir()
    (tmp_path / "lists/mine.csv").write_text("path,label\n1.png,cat\n")
    for table in (tmp_path / "lists/mine.csv", "lists/mine.csv"):
        line = f"evaluate --dataset {table} --root photos --classes cat dog --methods zero_shot --n-views 1 --json"
        code, out, _ = ran(capsys, line)
        assert (code, json.loads(out)["rows"][0]["n"]) == (0, 1)
    assert len(list(tmp_path.glob("mine-*.jsonl"))) == 1


@pytest.mark.filterwarnings("default")
def test_classes_in_another_order_than_the_folders_are_warned_about(capsys, tmp_path):
    for name in ("cat", "dog"):
        save(tmp_path / "photos" / name / "1.png")
    line = "evaluate --dataset photos --classes dog cat --methods zero-shot --n-views 1 --num-workers 0"
    code, _, errors = ran(capsys, line)
    assert code == 0
    assert any("warning: load_dataset: classes are the names that photos has, in another order: class 0 is 'dog'" in one
               for one in errors)  # fmt: skip


def test_bongard_problems_are_solved(capsys, tmp_path):
    home = tmp_path / "bongard-hoi"
    sides = [[{"im_path": f"{side}{i}.png"} for i in range(7)] for side in "pn"]
    for side in sides:
        for i, image in enumerate(side):
            save(home / image["im_path"], i)
    (home / "bongard_hoi_test_seen_obj_seen_act.json").write_text(json.dumps([sides]))
    line = "evaluate --dataset bongard-hoi --root . --split seen_act_seen_obj --methods prototype --json"
    code, out, _ = ran(capsys, line)
    assert code == 0
    (row,) = json.loads(out)["rows"]
    assert (row["dataset"], row["method"], row["n"]) == ("bongard-hoi/seen_act_seen_obj", "prototype", 2)
    code, out, _ = ran(capsys, "evaluate --dataset tiny-bongard --limit 1 --methods prototype --json")
    assert (code, json.loads(out)["rows"][0]["n"]) == (0, 2)
    code, _, (error,) = ran(capsys, line.replace("evaluate", "compare"))
    assert code == 2
    assert "evaluate takes Bongard problems" in error
