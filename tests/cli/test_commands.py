"""Every command: what it prints is what the library returns."""

import json
import re
import sys

import pytest
from support.command_line import STYLE, ran, save, tiny

import tpt_lib


def test_classify(capsys, tmp_path):
    first, second = save(tmp_path / "a.png", 1), save(tmp_path / "b.png", 2)
    (tmp_path / "names.txt").write_text("cat\n\ndog\n hot dog \n")
    code, out, errors = ran(capsys, f"classify {first} {second} --classes-file names.txt --n-views 4 --top 2 --seed 3")
    assert (code, errors) == (0, [])
    names = ["cat", "dog", "hot dog"]
    for line, path in zip(out.splitlines(), (first, second), strict=True):
        want = tpt_lib.tpt_classify(tiny(), path, names, n_views=4, seed=3)
        (a, p), (b, q) = want.top(2)
        (c, r) = want.zero_shot.top(1)[0]
        assert line == f"{path}: {a} {p:.2f}, {b} {q:.2f}; zero-shot {c} {r:.2f}"


def test_classify_as_json(capsys, tmp_path):
    path = save(tmp_path / "a.png")
    line = f"classify {path} --classes cat dog --template 'a sketch of a {{}}.' --recipe augmix --n-views 4 --json"
    code, out, _ = ran(capsys, line)
    prompts = tpt_lib.class_prompts(tiny(), ["cat", "dog"], template="a sketch of a {}.")
    want = tpt_lib.tpt_classify(tiny(), path, prompts, n_views=4, recipe="augmix").to_dict()
    assert code == 0
    assert json.loads(out) == {"classes": ["cat", "dog"], "predictions": [{"image": path, **want}]}


@pytest.mark.parametrize("name", ["zero_shot", "view-average", "Majority Vote", "memo_clip"])
def test_classify_by_any_method(name, capsys, tmp_path):
    path = save(tmp_path / "a.png")
    code, out, _ = ran(capsys, f"classify {path} --classes cat dog --method '{name}' --n-views 4 --json")
    want = tpt_lib.classify(tiny(), path, ["cat", "dog"], method=name, n_views=4)
    assert code == 0
    assert json.loads(out)["predictions"] == [{"image": path, **want.to_dict()}]


def test_a_bad_image_is_named_and_the_others_are_classified(capsys, tmp_path):
    good = save(tmp_path / "a.png")
    (tmp_path / "b.png").write_bytes(b"no image")
    line = f"classify b.png {good} none.png --classes cat dog --n-views 4"
    code, out, errors = ran(capsys, line)
    assert code == 1
    assert out.startswith(f"{good}: ")
    assert [error.split(": ")[1] for error in errors] == ["b.png", "none.png"]
    code, out, _ = ran(capsys, f"{line} --json")
    assert code == 1
    assert ["error" in one for one in json.loads(out)["predictions"]] == [True, False, True]


def test_a_learned_prompt(capsys, tmp_path):
    path = save(tmp_path / "a.png")
    context = tpt_lib.gaussian_context(tiny(), 5, sigma=1.0)
    tpt_lib.save_prompt("coop.pth.tar", tpt_lib.prompts.LearnedPrompt(context))
    _, out, _ = ran(capsys, f"classify {path} --classes cat dog --prompt coop.pth.tar --n-views 4 --json")
    prompts = tpt_lib.class_prompts(tiny(), ["cat", "dog"], context=context)
    want = tpt_lib.tpt_classify(tiny(), path, prompts, n_views=4)
    assert json.loads(out)["predictions"][0]["logits"] == want.logits.tolist()


def test_where_a_model_comes_from(capsys, tmp_path, monkeypatch):
    asked = []
    for loader in ("load_open_clip", "load_transformers"):
        monkeypatch.setattr(f"tpt_lib.{loader}", lambda *a, loader=loader: asked.append((loader, *a)) or tiny())
    path = save(tmp_path / "a.png")
    (tmp_path / "clip").mkdir()
    (tmp_path / "clip/config.json").write_text("{}")
    for options in ("--model ViT-B-16 --pretrained openai", "--model clip --device cpu"):
        assert ran(capsys, f"classify {path} --classes cat dog --n-views 2 {options}")[0] == 0
    assert asked == [("load_open_clip", "ViT-B-16", "openai"), ("load_transformers", "clip")]
    code, _, (error,) = ran(capsys, f"classify {path} --classes cat dog --pretrained openai")
    assert code == 2
    assert "the embedded model brings its own weights" in error


def test_a_model_there_is_not(capsys):
    code, _, (error,) = ran(capsys, "classify a.png --classes cat dog --model ViT-B-61 --pretrained openai")
    assert code == 2
    assert "ViT-B-16" in error


def test_models(capsys):
    code, out, _ = ran(capsys, "models rn50 --json")
    rows = json.loads(out)
    assert code == 0
    assert {"model": "RN50", "pretrained": "openai"} in rows
    assert all("rn50" in row["model"].lower() for row in rows)
    assert "tiny" in ran(capsys, "models")[1]
    assert ran(capsys, "models zzz") == (0, "", ["tpt-lib: no model has 'zzz' in its name"])


def test_methods(capsys):
    code, out, _ = ran(capsys, "methods --json")
    rows = json.loads(out)
    assert (code, [row["name"] for row in rows]) == (0, list(tpt_lib.list_methods()))
    for row in rows:
        entry = tpt_lib.get_method(row["name"])
        assert (row["title"], row["needs"], row["paper"]) == (entry.title, ", ".join(entry.needs), entry.paper)
    assert re.search(r"^tpt +TPT +features +Shu et al.", ran(capsys, "methods")[1], flags=re.MULTILINE)


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


def test_what_is_wrong_is_one_line_and_touches_nothing(capsys, tmp_path):
    for line, says in {
        "evaluate": "--dataset is missing",
        "evaluate --dataset pets": "'pets' needs a root",
        "evaluate --dataset petz": "did you mean 'pets'?",
        f"evaluate --dataset {STYLE} --methods tpt coop": "there is no method 'coop'; there are tpt",
        f"evaluate --dataset {STYLE} --limit 0": "--limit must be at least 1, but is 0",
        f"compare a.png --dataset {STYLE}": "images or --dataset, not both",
        "compare a.png": "pass --classes or --classes-file",
        "datasets --root none": "--root: 'none' is not a folder",
        f"evaluate --dataset {STYLE} --num-workers -1": "num_workers must be 0 or more, but got -1",
        "evaluate --dataset tiny-bongard --n-views 4": "--n-views: not for Bongard problems",
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


def test_compare(capsys, tmp_path):
    code, out, _ = ran(capsys, f"compare --dataset {STYLE} --limit 2 --methods zero-shot tpt --n-views 4 --json")
    table = json.loads(out)
    assert code == 0
    assert [row["method"] for row in table["rows"]] == ["zero-shot", "TPT"]
    assert all(row["accuracy"] in (0, 0.5, 1) for row in table["rows"])
    path = save(tmp_path / "a.png")
    code, out, _ = ran(capsys, f"compare {path} --classes cat dog --n-views 4")
    assert code == 0
    assert re.findall(r"^(zero-shot|80 templates|averaged|majority vote|TPT) +(cat|dog)", out, flags=re.MULTILINE)
    assert len(out.splitlines()) == 8


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
    code, _, (error,) = ran(capsys, "report run.jsonl --compare zero-shot CoOp")
    assert (code, "there is no method 'CoOp'" in error) == (2, True)


def test_datasets(capsys, tmp_path):
    rows = {row["name"]: row for row in json.loads(ran(capsys, "datasets --json")[1])}
    assert rows["dtd"] == {"name": "dtd", "classes": 47, "train": 2820, "val": 1128, "test": 1692, "views": "augmix"}
    assert (rows[STYLE]["test"], rows["tiny-bongard"]["test"]) == (430, 60)
    assert set(tpt_lib.list_datasets()) <= set(rows)
    (tmp_path / "imagenet-r/n01443537").mkdir(parents=True)
    out = ran(capsys, "datasets --root .")[1]
    assert re.search(
        r"^imagenet-r .*no: imagenet-r: 200 of 200 classes have no images: 'goldfish'", out, flags=re.MULTILINE
    )
    assert re.search(r"^dtd .*no: dtd: no split_zhou", out, flags=re.MULTILINE)


def test_demo_is_called(capsys, monkeypatch):
    called = []

    def told(**options):
        called.append(options)
        sys.stdout.write("told\n")
        return {"n": options["n"]}

    monkeypatch.setattr("tpt_lib.tiny.demo.demo", told)
    line = "demo --style emojione-monotone --n 3 --seed 5 --out there.png"
    assert ran(capsys, line) == (0, "told\n", [])
    assert called == [{"style": "emojione-monotone", "n": 3, "seed": 5, "out": "there.png"}]
    code, out, errors = ran(capsys, f"{line} --json")
    assert (code, json.loads(out), errors) == (0, {"n": 3}, ["told"])
