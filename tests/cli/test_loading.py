"""Models, presets, rewards and methods that options name: what is printed is what the library returns."""

import json

import pytest
from support import rewards
from support.command_line import STYLE, ran, save, tiny

import tpt_lib
from tpt_lib.cli.loading import methods_of
from tpt_lib.cli.parser import parser
from tpt_lib.evaluation import read_run
from tpt_lib.evaluation.data.registry import EMBEDDED

NAMES = ["cat", "dog", "hot dog"]


@pytest.fixture
def second(monkeypatch):
    """The reward model, in place of those of open_clip; returns what was asked for."""
    asked = []
    monkeypatch.setattr("tpt_lib.load_open_clip", lambda *given: asked.append(given) or rewards.second_clip())
    return asked


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
    assert "--pretrained: for architectures of open_clip; the embedded model has its own weights" in error


def test_a_model_there_is_not(capsys):
    code, _, (error,) = ran(capsys, "classify a.png --classes cat dog --model ViT-B-61 --pretrained openai")
    assert code == 2
    assert "ViT-B-16" in error


def test_a_dataset_there_is_not(capsys):
    code, _, (error,) = ran(capsys, "evaluate --dataset xyz")
    assert code == 2
    assert f"embedded one: {', '.join(EMBEDDED)}" in error
    code, _, (error,) = ran(capsys, "evaluate --dataset noto-v2")
    assert code == 2
    assert "did you mean 'noto-v1'" in error


def test_a_preset_changes_the_settings(capsys, tmp_path):
    path = save(tmp_path / "a.png")
    line = f"classify {path} --classes cat dog 'hot dog' --method tps --n-views 4 --json"
    logits = [json.loads(ran(capsys, line + more)[1])["predictions"][0]["logits"] for more in ("", " --preset pets")]
    wants = [tpt_lib.classify(tiny(), path, NAMES, method="tps", n_views=4, preset=own) for own in (None, "pets")]
    assert logits == [want.logits.tolist() for want in wants]
    assert logits[0] != logits[1]


def test_the_preset_of_the_dataset(capsys, tmp_path, monkeypatch):
    for name in ("cat", "dog"):
        save(tmp_path / "pets" / name / "1.png")
    line = "evaluate --dataset ./pets --methods tps --n-views 2 --num-workers 0 --preset dataset --out run.jsonl"
    assert ran(capsys, line)[0] == 0
    assert read_run("run.jsonl").header["settings"]["preset"] == "pets"
    found = []
    monkeypatch.setattr("tpt_lib.compare", lambda *_, **options: found.append(options) or tpt_lib.evaluation.Table(()))
    ran(capsys, "compare --dataset ./pets --n-views 2 --preset dataset")
    assert found[0]["preset"] == "pets"


def test_a_preset_there_is_not(capsys, tmp_path):
    path = save(tmp_path / "a.png")
    code, _, (error,) = ran(capsys, f"classify {path} --classes cat dog --preset petz")
    assert code == 2
    assert "'petz'" in error


def test_a_second_model_is_the_reward(second, capsys, tmp_path):
    path = save(tmp_path / "a.png")
    line = f"classify {path} --classes cat dog 'hot dog' --method rlcf --n-views 12 --template 'a {{}}.' --json"
    code, out, _ = ran(capsys, f"{line} --reward ViT-L-14:openai")
    assert (code, second) == (0, [("ViT-L-14", "openai")])
    prompts = tpt_lib.class_prompts(tiny(), NAMES, template="a {}.")
    want = tpt_lib.classify(tiny(), path, prompts, method="rlcf", n_views=12, reward=rewards.pair(NAMES))
    assert json.loads(out)["predictions"] == [{"image": path, **want.to_dict()}]
    code, out, _ = ran(capsys, f"{line} --reward tiny hf-hub:some/clip")
    assert (code, second[1:]) == (0, [("hf-hub:some/clip", None)])
    both = [(tiny(), prompts), rewards.pair(NAMES)]
    want = tpt_lib.classify(tiny(), path, prompts, method="rlcf", n_views=12, reward=both)
    assert json.loads(out)["predictions"] == [{"image": path, **want.to_dict()}]


@pytest.mark.slow
def test_a_reward_in_compare_and_evaluate(second, capsys):
    line = f"--dataset {STYLE} --limit 2 --methods rlcf --n-views 10 --reward RN50 --json"
    code, out, _ = ran(capsys, f"compare {line}")
    assert (code, [row["method"] for row in json.loads(out)["rows"]]) == (0, ["RLCF"])
    code, out, _ = ran(capsys, f"evaluate {line} --num-workers 0")
    assert (code, [row["method"] for row in json.loads(out)["rows"]]) == (0, ["RLCF"])
    assert second == [("RN50", None)] * 2


@pytest.mark.parametrize(("options", "says"), [
    ("--method rlcf", "'RLCF' needs a reward; pass reward=(model, prompts)"),
    ("--method zero --reward tiny", "reward was given, but none of the methods needs one"),
])  # fmt: skip
def test_a_reward_that_is_missing_or_not_needed(options, says, capsys, tmp_path):
    path = save(tmp_path / "a.png")
    code, _, (error,) = ran(capsys, f"classify {path} --classes cat dog --n-views 2 {options}")
    assert code == 2
    assert says in error


@pytest.mark.slow
def test_all_methods(capsys, tmp_path):
    code, out, _ = ran(capsys, f"compare {save(tmp_path / 'a.png')} --classes cat dog --methods all --n-views 2 --json")
    rows = [row["method"] for row in json.loads(out)["rows"]]
    known = {name: tpt_lib.get_method(name) for name in tpt_lib.list_methods()}
    assert (code, rows[0]) == (0, "zero-shot")
    assert sorted(rows) == sorted(entry.title for entry in known.values() if "reward" not in entry.needs)
    given = methods_of(parser().parse_args(["compare", "--methods", "all", "--reward", "tiny"]), ())
    assert sorted(given) == sorted(known)
