"""The commands evaluate and report, and what all commands refuse."""

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


@pytest.mark.filterwarnings("default")
def test_classes_in_another_order_than_the_folders_are_warned_about(capsys, tmp_path):
    for name in ("cat", "dog"):
        save(tmp_path / "photos" / name / "1.png")
    line = "evaluate --dataset photos --classes dog cat --methods zero-shot --n-views 1 --num-workers 0"
    code, _, errors = ran(capsys, line)
    assert code == 0
    assert any("warning: load_dataset: classes are the names that photos has, in another order: class 0 is 'dog'" in one
               for one in errors)  # fmt: skip


def test_what_is_wrong_is_one_line_and_touches_nothing(capsys, tmp_path):
    for line, says in {
        "evaluate": "--dataset is missing",
        "evaluate --dataset pets": "'pets' needs a root",
        "evaluate --dataset petz": "did you mean 'pets'?",
        f"evaluate --dataset {STYLE} --methods tpt coop": "there is no method 'coop'; there are boostadapter",
        f"evaluate --dataset {STYLE} --limit 0": "--limit must be at least 1, but is 0",
        f"compare a.png --dataset {STYLE}": "images or --dataset, not both",
        "compare a.png": "pass --classes or --classes-file",
        "datasets --root none": "--root: 'none' is not a folder",
        f"evaluate --dataset {STYLE} --seeds 0 0": "seeds must differ, but got [0, 0]",
        "evaluate --dataset tiny-bongard --seeds 0 0": "seeds must differ, but got [0, 0]",
        f"evaluate --dataset {STYLE} --num-workers -1": "num_workers must be 0 or more, but got -1",
        "evaluate --dataset tiny-bongard --n-views 4": "--n-views: not for Bongard problems",
        "evaluate --dataset tiny-bongard --order shuffle": "--order: not for Bongard problems",
        f"evaluate --dataset {STYLE} --methods tda --order sorted": "order must be one of dataset, shuffle, by-class",
        f"evaluate --dataset {STYLE} --methods tda --order domains": "order='domains' needs the domain of each sample",
        f"evaluate --dataset {STYLE} --order shuffle": "order was given, but none of the methods is online",
        f"evaluate --dataset {STYLE} --methods tda --backend ray": "'TDA' is an online method",
        "evaluate --dataset tiny-bongard --template 'a {}' --backend ray": "--template, --backend: not for Bongard",
        "evaluate --dataset tiny-bongard --methods zero_shot": "there is no method 'zero_shot'; there are prototype, tpt",
        "classify a.png --classes cat dog --top 0": "--top must be at least 1, but is 0",
        "classify a.png --classes cat dog --device abacus": "--device abacus cannot be used",
        "classify a.png --classes cat dog --method tpd": "there is no method 'tpd'",
    }.items():
        code, out, (error,) = ran(capsys, line)
        assert (code, out) == (2, "")
        assert says in error
    assert list(tmp_path.iterdir()) == []


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


def test_report(capsys, tmp_path):
    ran(capsys, f"evaluate --dataset {STYLE} --limit 3 --n-views 2 --num-workers 0 --out run.jsonl")
    read = tpt_lib.Report.read("run.jsonl")
    tested = read.compare("zero-shot", "TPT")
    assert ran(capsys, "report run.jsonl")[:2] == (0, f"{read}\n")
    assert ran(capsys, "report run.jsonl --format csv")[1] == read.to_csv()
    out = ran(capsys, "report run.jsonl --format markdown --compare zero-shot TPT --plots figures")[1]
    assert out == f"{read.to_markdown()}\n\n{tested.to_markdown()}\n"
    assert {file.name for file in (tmp_path / "figures").iterdir()} == {"accuracies.png", "reliability.png"}
    out = json.loads(ran(capsys, "report run.jsonl --compare zero-shot TPT --json")[1])
    assert out["rows"] == read.rows()
    assert out["compare"] == tested.to_dict()
    code, out, (note,) = ran(capsys, "report run.jsonl --html report.html")
    assert (code, out, note) == (0, f"{read}\n", "tpt-lib: The page is in report.html")
    assert (tmp_path / "report.html").read_text().startswith("<!doctype html>")
    code, _, (error,) = ran(capsys, "report run.jsonl --html report.html --root none")
    assert (code, "'none' is not a folder" in error) == (2, True)
    code, _, (error,) = ran(capsys, "report run.jsonl --compare zero-shot CoOp")
    assert (code, "there is no method 'CoOp'" in error) == (2, True)
