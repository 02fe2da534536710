"""What the page shows of one image is what the library says, and the Python that it shows gives the same."""

import os

import PIL.Image
import pytest
import torch
from support.app import tiny
from support.marking import slow_but

import tpt_lib
from tpt_lib.app.choices import Choice, default_settings, read_drawing, read_upload, selectable_methods
from tpt_lib.app.explain import explain
from tpt_lib.app.stoppable import Stopped

NAMES = ("unicorn", "telescope", 'violin\'s "bow"')


def choice_of(method="tpt", picture=None, **settings):
    settings = {name: settings.get(name, value) for name, value in default_settings(method).items()}
    return Choice(picture or read_drawing("noto-v1: unicorn"), NAMES, "a sketch of {}.", 16, 3, method, settings)


def executed(code):
    names = {}
    exec(code, names)
    return names["result"]


@pytest.mark.filterwarnings("ignore:the embedded model")
@pytest.mark.parametrize("method", slow_but(["tpt", "zero"], selectable_methods()))
def test_the_python_call_gives_the_same_result(method, capsys):
    found = explain(tiny(), choice_of(method, fraction=0.5, steps=2))
    said = executed(found.code)
    assert torch.equal(said.logits, found.prediction.logits)
    assert said.names == NAMES
    assert capsys.readouterr().out == f"{said}\n"


@pytest.mark.filterwarnings("ignore:the embedded model")
def test_the_python_call_of_an_upload(tmp_path, monkeypatch, photo):
    """A file name and class names cannot break out of their quotes."""
    path = tmp_path / "it's #1'); os.abort(); ('.png"
    photo.resize((90, 60)).save(path)
    found = explain(tiny(), choice_of(picture=read_upload(path)))
    monkeypatch.chdir(tmp_path)
    assert torch.equal(executed(found.code).logits, found.prediction.logits)


@pytest.mark.filterwarnings("ignore:the embedded model")
def test_views_losses_and_words():
    choice = choice_of(steps=3)
    found = explain(tiny(), choice)
    model, prompts = tiny().model, tpt_lib.class_prompts(tiny().model, NAMES, template=choice.template)
    views = tpt_lib.augment_views(choice.source.pixels, model.image_spec, n_views=16, seed=3)
    assert torch.equal(found.views, views)
    tuned = tpt_lib.tune_prompt(model, prompts, tpt_lib.encode_views(model, views), steps=3)
    assert found.losses == {step: pytest.approx(loss) for step, loss in enumerate(tuned.losses.tolist())}
    assert torch.equal(found.prediction.selected, tuned.selected)
    torch.testing.assert_close(found.before[0], found.prediction.zero_shot.logits)
    torch.testing.assert_close(found.after[0], found.prediction.logits)
    assert len(found.before) == len(found.after) == 16
    assert [start for start, _ in found.words] == ["a", "sketch", "of"]
    assert all(len(near) == 3 for _, near in found.words)
    assert "was not trained on 'violin\\'s \"bow\"'" in found.notes[0]


@pytest.mark.filterwarnings("ignore:the embedded model")
@pytest.mark.parametrize("method", slow_but(["ctpt"], ["ctpt", "otpt", "rtpt"]))
def test_losses_of_each_step(method):
    losses = explain(tiny(), choice_of(method, steps=3)).losses
    assert list(losses) == [0, 1, 2, 3]
    assert losses[2] == pytest.approx(explain(tiny(), choice_of(method, steps=2)).losses[2], abs=1e-6)


@pytest.mark.filterwarnings("ignore:the embedded model")
def test_a_method_that_does_not_tune_a_context():
    found = explain(tiny(), choice_of("zero"))
    assert (found.after, found.losses, found.words) == (None, {}, [])
    assert "votes" in found.notes[0]


@pytest.mark.filterwarnings("ignore:the embedded model")
@pytest.mark.parametrize("last", ["views", "features of view 1 of 16", "step 1 of 2"])
def test_work_stops_at_any_report(last):
    seen = []

    def report(done, doing):
        seen.append((done, doing))
        if doing == last:
            raise Stopped

    with pytest.raises(Stopped):
        explain(tiny(), choice_of(steps=2), report)
    assert seen[-1][1] == last
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)


@pytest.mark.filterwarnings("ignore:tune_prompt. a loss or gradient was not finite", "ignore:the embedded model")
def test_a_prompt_that_could_not_be_tuned_is_told(monkeypatch):
    nan = lambda logits: (logits * torch.nan).sum()  # noqa: E731
    monkeypatch.setattr("tpt_lib.app.explain.keywords_of", lambda *_: {"objective": nan, "steps": 1})
    assert explain(tiny(), choice_of()).notes[0].startswith("A loss or gradient was not finite")


def test_the_image_file_is_not_kept_open(tmp_path):
    path = tmp_path / "a.png"
    PIL.Image.new("RGB", (8, 8)).save(path)
    read_upload(path)
    os.remove(path)
