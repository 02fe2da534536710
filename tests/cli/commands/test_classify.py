"""The command classify: what it prints is what the library returns."""

import json

import pytest
from support.command_line import ran, save, tiny
from support.marking import slow_but

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


@pytest.mark.parametrize(
    "name", slow_but(["Majority Vote"], ["zero_shot", "view-average", "Majority Vote", "memo_clip"])
)
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
