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
    assert "--pretrained: for architectures of open_clip; the embedded model brings its own weights" in error


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
    assert (code, [row["name"] for row in rows]) == (0, [*tpt_lib.list_methods(), *tpt_lib.list_methods(online=True)])
    for row in rows:
        entry = tpt_lib.get_method(row["name"])
        assert (row["title"], row["needs"], row["paper"]) == (entry.title, ", ".join(entry.needs), entry.paper)
        assert row["kind"] == ("online" if entry.online else "episodic")
    assert re.search(r"^tpt +TPT +episodic +features +Shu et al.", ran(capsys, "methods")[1], flags=re.MULTILINE)


def test_compare(capsys, tmp_path):
    code, out, _ = ran(
        capsys, f"compare --dataset {STYLE} --limit 2 --methods zero-shot tpt --n-views 4 --seed 2 --json"
    )
    rows = json.loads(out)["rows"]
    assert (code, [row["method"] for row in rows]) == (0, ["zero-shot", "TPT"])
    data = tpt_lib.load_tiny_drawings(STYLE)
    two = [data.samples[i] for i in (0, 215)]
    want = tpt_lib.compare(tiny(), two, data.classes, methods=["zero_shot", "tpt"], n_views=4, seed=2)
    assert [row["accuracy"] for row in rows] == want.column("accuracy")
    assert [row["entropy"] for row in rows] == pytest.approx(want.column("entropy"), rel=1e-4)


def test_compare_images_without_labels(capsys, tmp_path):
    path = save(tmp_path / "a.png")
    code, out, _ = ran(capsys, f"compare {path} --classes cat dog --n-views 4")
    assert code == 0
    head, rule, *rows, note = out.splitlines()
    assert head.split()[:3] == ["method", "label", "accuracy"]
    assert set(rule) == {"-"}
    want = tpt_lib.compare(tiny(), path, ["cat", "dog"], n_views=4)
    names = ["zero-shot", "template ensemble", "averaged prediction", "majority vote", "TPT"]
    assert [row[: row.index("  ")] for row in rows] == names
    assert [row.split("  ", 1)[1].split()[0] for row in rows] == want.column("label")
    assert note.startswith("Over 1 image(s). ")


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
    assert re.search(r"^pacs .*no: pacs: no folder 'art_painting' in", out, flags=re.MULTILINE)


def test_a_table_with_the_folder_of_its_images(capsys, tmp_path):
    save(tmp_path / "photos/1.png")
    (tmp_path / "lists").mkdir()
    (tmp_path / "lists/mine.csv").write_text("path,label\n1.png,cat\n")
    for table in (tmp_path / "lists/mine.csv", "lists/mine.csv"):
        line = f"evaluate --dataset {table} --root photos --classes cat dog --methods zero_shot --n-views 1 --json"
        code, out, _ = ran(capsys, line)
        assert (code, json.loads(out)["rows"][0]["n"]) == (0, 1)
    assert len(list(tmp_path.glob("mine-*.jsonl"))) == 1


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
