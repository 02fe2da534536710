"""The demo: what it tells, prints and draws."""

import dataclasses
import re
import sys

import pytest
import torch

import tpt_lib
from tpt_lib.tiny.demo import METHODS, demo

TITLES = ["zero-shot", "averaged prediction", "TPT", "ZERO", "MTA", "TPS"]


@pytest.mark.slow
def test_the_demo_tells_and_draws(tmp_path, capsys):
    told = demo(n=3, out=tmp_path / "demo.png")
    first, _, head, _, *rows, shared, figure = capsys.readouterr().out.splitlines()
    assert first.startswith("3 drawings of noto-v1, a style the model was not trained on; ")
    assert head.split() == ["method", "accuracy", "fixed", "broken", "p", "(McNemar)", "ms", "per", "drawing"]
    for row, title, own in zip(rows, TITLES, told["methods"].values(), strict=True):
        name, accuracy, fixed, broken, _, spent = re.split("  +", row)
        assert (name, accuracy) == (title, f"{own['accuracy']:.1%}")
        assert (int(fixed), int(broken)) == (len(own["fixed"]), len(own["broken"]))
        assert spent == f"{1000 * own['seconds']:.1f}"
    assert re.match(r"\d+ ms per drawing for its views and their features, shared by all", shared)
    changed = any(own["fixed"] + own["broken"] for own in told["methods"].values())
    assert figure.startswith("wrote" if changed else "no figure: no method changed")
    assert (tmp_path / "demo.png").exists() == changed


@pytest.mark.slow
def test_the_numbers_are_those_of_the_library(tiny, prompts, tmp_path):
    told = demo(style="emojione-monotone", n=4, seed=1, out=tmp_path / "demo.png")
    data = tpt_lib.load_tiny_drawings("emojione-monotone", n=4, seed=1)
    images = [image for image, _ in data.samples]
    for name, own in told["methods"].items():
        said = tpt_lib.classify(tiny, images, prompts, method=name, seed=1)
        right, before = (p.indices == torch.tensor(data.labels) for p in (said, said.zero_shot))
        assert own["accuracy"] == right.double().mean()
        assert own["fixed"] == (right & ~before).nonzero().flatten().tolist()
        assert own["broken"] == (before & ~right).nonzero().flatten().tolist()


def test_changed_answers_are_counted_and_drawn(monkeypatch, tmp_path, capsys):
    """Drawing 0 is fixed by two methods and drawing 1 by one, drawing 2 is broken by one."""
    data = tpt_lib.load_tiny_drawings(n=4)
    names, (a, b, c, d) = data.classes, data.labels
    said = {name: [b, a, c, d] for name in METHODS}
    said["mta"], said["tps"] = [a, b, c, d], [a, a, b, d]
    calls = {name: iter(answers) for name, answers in said.items()}

    def answering(name):
        def predict(model, prompts, features):
            return tpt_lib.Prediction(names, 9.0 * torch.eye(len(names))[next(calls[name])])

        return dataclasses.replace(tpt_lib.get_method(name), predict=predict)

    monkeypatch.setattr("tpt_lib.tiny.demo.get_method", answering)
    drawn = []
    monkeypatch.setattr(
        "tpt_lib.tiny.demo.plot_gallery", lambda *given: drawn.append(given) or type("F", (), {"savefig": print})()
    )
    told = demo(n=4, out=tmp_path / "demo.png")["methods"]
    assert [(own["fixed"], own["broken"]) for own in told.values()] == [([], [])] * 4 + [([0, 1], []), ([0], [2])]
    assert [own["accuracy"] for own in told.values()] == [0.5] * 4 + [1.0, 0.5]
    (images, truths, answers) = drawn[0]
    assert len(images) == 3
    assert truths == [names[a], names[b], names[c]]
    assert answers["TPS"] == [names[a], names[a], names[b]]


@pytest.mark.slow
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
