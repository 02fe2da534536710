"""All methods on one image, and Bongard problems, as the library says them."""

import pytest
import torch
from support.app import tiny

import tpt_lib
from tpt_lib.app.choices import Choice, Picture, read_drawing, selectable_methods
from tpt_lib.app.other_tabs import compare_methods, solve_bongard
from tpt_lib.methods import base

CHOICE = Choice(read_drawing("noto-v1: unicorn"), ("unicorn", "telescope", "goat"), n_views=8, seed=1)
QUIET = pytest.mark.filterwarnings("ignore:the embedded model was not trained on")  # the templates of an ensemble


@pytest.mark.slow
@QUIET
def test_every_method_says_what_classify_says():
    rows = compare_methods(tiny(), CHOICE)
    assert rows[0].title == "zero-shot"
    titles = {tpt_lib.get_method(name).title: name for name in selectable_methods(features_only=True)}
    assert {row.title for row in rows} == set(titles)
    prompts = tpt_lib.class_prompts(tiny().model, CHOICE.names)
    for row in rows:
        said = tpt_lib.classify(
            tiny().model, CHOICE.source.pixels, prompts, method=titles[row.title], n_views=8, seed=1
        )
        assert torch.equal(row.prediction.logits, said.logits), row.title


@QUIET
def test_a_method_that_refuses_has_its_message_in_its_row(monkeypatch):
    monkeypatch.setattr(base, "_entries", dict(base._entries))

    @base.method(name="refusing", title="Refusing", paper="none")
    def refusing(model, prompts, features):
        raise ValueError("not today")

    rows = {row.title: row for row in compare_methods(tiny(), CHOICE)}
    assert (rows["Refusing"].prediction, rows["Refusing"].error) == (None, "not today")
    assert rows["TPT"].prediction is not None


def test_a_problem_is_solved_as_bongard_tpt_does():
    problem = tpt_lib.load_tiny_bongard().samples[7]
    groups = [[Picture(pixels, "") for pixels in group] for group in problem[:3]]
    reports = []
    solved = solve_bongard(tiny(), *groups, steps=16, report=lambda *said: reports.append(said))
    wanted = tpt_lib.bongard_tpt(tiny().model, *problem[:3], steps=16)
    torch.testing.assert_close(solved.logits, wanted.logits, atol=1e-3, rtol=1e-3)
    assert solved.verdicts == wanted.verdicts
    assert reports[0] == (0.0, "features of image 1 of 14")
    assert reports[-1] == (0.6, "16 steps")
    assert [len(group) for group in solved.images] == [6, 6, 2]


def test_too_many_steps():
    with pytest.raises(ValueError, match="steps must be a number from 0 to 256 here, but got 1000"):
        solve_bongard(tiny(), [], [], [], steps=1000)
