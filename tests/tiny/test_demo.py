"""The demo: what it tells, prints and draws."""

import re
import sys

import pytest
import torch

import tpt_lib
from tpt_lib.tiny.demo import demo


def test_the_demo_tells_and_draws(tmp_path, capsys):
    told = demo(n=3, out=tmp_path / "demo.png")
    out = capsys.readouterr().out
    assert re.search(
        r"zero-shot +\d+\.\d%\n +TPT +\d+\.\d% +\d fixed, \d broken, McNemar p = 1\n +\d+\.\d\d s per drawing", out
    )
    assert (tmp_path / "demo.png").stat().st_size > 20_000
    assert (told["n"], told["p"], len(out.splitlines())) == (3, 1.0, 8 + bool(told["fixed"] or told["broken"]))


@pytest.mark.slow
def test_the_numbers_are_those_of_the_library(tiny, prompts, tmp_path, capsys):
    told = demo(style="emojione-monotone", n=4, seed=1, out=tmp_path / "demo.png")
    data = tpt_lib.load_tiny_drawings("emojione-monotone", n=4, seed=1)
    said = tpt_lib.tpt_classify(tiny, [image for image, _ in data.samples], prompts, seed=1)
    right = [index == label for index, label in zip(said.indices.tolist(), data.labels, strict=True)]
    before = [index == label for index, label in zip(said.zero_shot.indices.tolist(), data.labels, strict=True)]
    assert (told["tpt"], told["zero_shot"]) == (sum(right) / 4, sum(before) / 4)
    assert told["fixed"] == [i for i in range(4) if right[i] and not before[i]]
    assert told["broken"] == [i for i in range(4) if before[i] and not right[i]]


def test_changed_answers_are_listed(monkeypatch, tmp_path, capsys):
    data = tpt_lib.load_tiny_drawings(n=2)
    names, (a, b) = data.classes, data.labels

    def logits_of(index):
        return 9.0 * torch.nn.functional.one_hot(torch.tensor(index), len(names))

    answers = iter([(b, a), (b, a)])  # the first is fixed, the second broken

    def predict(model, prompts, features):
        before, after = (tpt_lib.Prediction(names, logits_of(i)) for i in next(answers))
        return tpt_lib.Prediction(names, after.logits, before=before, context=prompts.context)

    monkeypatch.setattr("tpt_lib.tiny.demo.tpt_predict", predict)
    monkeypatch.setattr("tpt_lib.tiny.demo.plot_prediction", lambda *_, **__: type("F", (), {"savefig": print})())
    told = demo(n=2, out=tmp_path / "demo.png")
    out = capsys.readouterr().out
    assert (told["fixed"], told["broken"]) == ([0], [1])
    rows = [re.split(r"  +", line.strip()) for line in out.splitlines() if line.startswith("  ")]
    assert [names[a], f"{names[b]} 0.95", f"{names[a]} 0.95"] in rows
    assert [names[b], f"{names[b]} 0.95", f"{names[a]} 0.95"] in rows


def test_without_matplotlib_it_says_so_first_and_runs(monkeypatch, tmp_path, capsys):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    told = demo(n=1, out=tmp_path / "none" / "demo.png")
    first = capsys.readouterr().out.splitlines()[0]
    assert first == 'no figure: figures need matplotlib: pip install "tpt_lib[plots]"'
    assert told["n"] == 1


@pytest.mark.parametrize(("out", "says"), [("none/demo.png", "in an existing folder"), (".", "must be a file"),
                                           ("demo.txt", "must end with .png")])  # fmt: skip
def test_a_figure_that_cannot_be_written_is_refused_before_the_work(out, says, tmp_path, capsys):
    with pytest.raises((OSError, ValueError), match=f"^demo: out=.*{says}"):
        demo(n=1, out=tmp_path / out)
    assert capsys.readouterr().out == ""
