"""What a prediction says about one image and about a batch, how it shows itself, and what it refuses."""

import copy
import json
import math
import pickle
import re

import pytest
import torch

from tpt_lib import Prediction
from tpt_lib.prediction import compared

NAMES = ("cat", "<dog> & co", "red panda")
LOGITS = torch.tensor([[2.0, 0.0, -1.0], [0.0, 1.0, 3.0], [0.5, 4.0, 0.0]])


def batch_of_three():
    """Every part is there, and the images used different numbers of views."""
    return Prediction(
        NAMES,
        LOGITS,
        before=Prediction(NAMES, LOGITS.flip(0)),
        tuned=torch.tensor([True, False, True]),
        loss_before=torch.tensor([0.5, math.nan, 0.25]),
        loss_after=torch.tensor([0.4, math.inf, 0.125]),
        selected=torch.tensor([[3, 1], [0, -1], [2, 5]]),
        context=torch.arange(24.0).reshape(3, 2, 4),
    )


def parts(prediction):
    own = {name: value for name, value in vars(prediction).items() if name != "before"}
    before = prediction.before
    return own | ({} if before is None else {f"before.{k}": v for k, v in parts(before).items()})


def assert_equal(one, other):
    mine, theirs = parts(one), parts(other)
    assert mine.keys() == theirs.keys()
    for name, value in mine.items():
        if isinstance(value, torch.Tensor):
            torch.testing.assert_close(value, theirs[name], rtol=0, atol=0, equal_nan=True, msg=name)
        else:
            assert value == theirs[name], name


@pytest.mark.parametrize("index", [0, 1, 2, -1])
def test_indexing_gives_one_image(index):
    one = batch_of_three()[index]
    assert torch.equal(one.logits, LOGITS[index])
    assert torch.equal(one.zero_shot.logits, LOGITS.flip(0)[index])
    assert one.tuned == batch_of_three().tuned[index]
    assert torch.equal(one.context, batch_of_three().context[index])
    assert one.selected.tolist() == [[3, 1], [0], [2, 5]][index], "what pads a batch belongs to no image"
    assert (one.index, one.label) == ([0, 2, 1][index], [NAMES[0], NAMES[2], NAMES[1]][index])


@pytest.mark.usefixtures("no_shape_checks")
def test_a_position_may_be_a_number_of_numpys():
    numpy = pytest.importorskip("numpy")
    assert batch_of_three()[numpy.int64(1)].selected.tolist() == [0]


@pytest.mark.parametrize("which", [slice(0, 2), slice(None, None, 2), slice(1, None), slice(2, 3)])
def test_a_slice_is_a_batch(which):
    some = batch_of_three()[which]
    assert len(some) == len(LOGITS[which])
    for one, other in zip(some, list(batch_of_three())[which], strict=True):
        assert_equal(one, other)


def test_a_batch_is_its_images():
    batch = batch_of_three()
    assert len(batch) == 3
    assert batch.labels == [one.label for one in batch]
    assert batch.indices.tolist() == [one.index for one in batch]
    assert torch.equal(batch.probs, torch.stack([one.probs for one in batch]))
    assert torch.equal(batch.entropy, torch.stack([one.entropy for one in batch]))
    assert_equal(Prediction.stack([batch[2]]), batch[2:3])
    assert_equal(Prediction.stack(list(batch)), batch)
    with pytest.raises(IndexError):
        batch[3]


def test_numbers_by_hand():
    one = Prediction(("cat", "dog"), torch.tensor([math.log(3), 0.0]))
    torch.testing.assert_close(one.probs, torch.tensor([0.75, 0.25]))
    assert one.entropy == pytest.approx(0.75 * math.log(4 / 3) + 0.25 * math.log(4))
    assert one.top(1) == [("cat", pytest.approx(0.75))]
    assert [name for name, _ in one.top(5)] == ["cat", "dog"]
    assert one.labels == ["cat"]
    assert one.tuned is one.before is one.selected is None


def test_images_of_one_batch_have_the_same_parts():
    with_parts, without = batch_of_three()[0], Prediction(NAMES, LOGITS[0])
    mixed = Prediction.stack([with_parts, without])
    assert mixed.tuned is mixed.before is mixed.selected is mixed.context is None
    with pytest.raises(ValueError, match="predictions must be one or more with the same class names"):
        Prediction.stack([without, Prediction(("a", "b", "c"), LOGITS[0])])
    with pytest.raises(ValueError, match="one or more with the same class names, but got 0"):
        Prediction.stack([])


@pytest.mark.parametrize(("ask", "what", "instead"), [
    (lambda batch: batch.label, "label", "labels"),
    (lambda batch: batch.index, "index", "indices"),
    (lambda batch: batch.top(2), "top", "probs.topk"),
    (lambda batch: batch.to_dict(), "to_dict", r"\[one.to_dict\(\) for one in prediction\]"),
])  # fmt: skip
def test_what_is_for_one_image_refuses_a_batch(ask, what, instead):
    with pytest.raises(
        TypeError, match=f"^Prediction: {what} is for one image, and this is a batch of 3; use {instead}$"
    ):
        ask(batch_of_three())


@pytest.mark.parametrize(
    ("ask", "what"), [(len, r"len\(\)"), (lambda one: one[0], "indexing"), (list, "iteration"), (iter, "iteration")]
)
def test_what_is_for_a_batch_refuses_one_image(ask, what):
    with pytest.raises(TypeError, match=f"^Prediction: {what} is for a batch, and this is one image; classify a list"):
        ask(batch_of_three()[0])


def test_a_prediction_is_true():
    """``prediction.zero_shot or prediction`` is what a caller writes."""
    one = batch_of_three()[0]
    assert (one.zero_shot or one) is one.zero_shot
    assert bool(one)
    assert bool(batch_of_three())


@pytest.mark.usefixtures("no_shape_checks")
@pytest.mark.parametrize("shape", [(2,), (4,), (5, 2), (3, 1), (), (2, 2, 3)])
def test_logits_that_do_not_fit_the_names_are_refused(shape):
    with pytest.raises(
        ValueError, match=r"there are 3 names, so logits must have shape \(3,\), or \(B, 3\) .* but got \("
    ):
        Prediction(NAMES, torch.zeros(shape))


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_logits_that_are_not_finite_are_refused(value):
    logits = LOGITS.clone()
    logits[1, 2] = value
    with pytest.raises(ValueError, match="Prediction: 1 of 9 logits are not finite; look for NaN or infinite weights"):
        Prediction(NAMES, logits)


@pytest.mark.parametrize("bad", ["after", "before"])
def test_logits_before_and_after_are_checked_together(bad):
    logits = LOGITS.clone()
    logits[1, 2] = math.nan
    after, before = (logits, LOGITS) if bad == "after" else (LOGITS, logits)
    with pytest.raises(ValueError, match="Prediction: 1 of 9 logits are not finite"):
        compared(NAMES, after, before)
    found = compared(NAMES, LOGITS, LOGITS + 1, tuned=torch.tensor([True, False, True]))
    assert_equal(found, Prediction(NAMES, LOGITS, Prediction(NAMES, LOGITS + 1), torch.tensor([True, False, True])))


@pytest.mark.usefixtures("no_shape_checks")
def test_images_of_a_batch_are_not_checked_again(monkeypatch):
    """Each check would wait for an accelerator."""
    batch, calls = batch_of_three(), []
    monkeypatch.setattr("tpt_lib.prediction.check_finite", lambda *_: calls.append(1))
    assert_equal(Prediction.stack(list(batch)), batch)
    assert calls == []


@pytest.mark.parametrize("send", [copy.deepcopy, copy.copy, lambda each: pickle.loads(pickle.dumps(each))])
def test_copies_and_pickles(send):
    for prediction in (batch_of_three(), batch_of_three()[1], Prediction(NAMES, LOGITS)):
        assert_equal(send(prediction), prediction)


def test_as_json():
    kept = [json.loads(json.dumps(one.to_dict(), allow_nan=False)) for one in batch_of_three()]
    assert kept[0] == {
        "label": "cat", "index": 0, "probs": pytest.approx(LOGITS[0].softmax(0).tolist()), "logits": LOGITS[0].tolist(),
        "entropy": pytest.approx(float(batch_of_three().entropy[0])), "tuned": True, "loss_before": 0.5,
        "loss_after": pytest.approx(0.4), "selected": [3, 1], "zero_shot": kept[0]["zero_shot"],
    }  # fmt: skip
    assert kept[0]["zero_shot"]["logits"] == LOGITS[2].tolist()
    assert kept[0]["zero_shot"]["tuned"] is None
    assert (kept[1]["tuned"], kept[1]["loss_before"], kept[1]["loss_after"]) == (False, None, None)


def test_how_it_prints():
    batch = batch_of_three()
    assert repr(batch) == "<Prediction of 3 images: 'cat', 'red panda', '<dog> & co'>"
    assert repr(Prediction.stack([*batch, batch[0]])).endswith("'<dog> & co', …>")
    assert repr(batch[0]) == "<Prediction 'cat' 0.84, '<dog> & co' 0.11, 'red panda' 0.04; zero-shot '<dog> & co' 0.95>"
    assert repr(batch[1]).endswith("; not tuned>")
    assert repr(batch[0].zero_shot) == "<Prediction '<dog> & co' 0.95, 'cat' 0.03, 'red panda' 0.02>"


def test_how_a_notebook_shows_it():
    batch = batch_of_three()
    drawn = batch[0]._repr_html_()
    assert "&lt;dog&gt; &amp; co" in drawn
    assert "<dog>" not in drawn
    assert (drawn.count("<tr>"), drawn.count("background:")) == (3, 6)
    assert "0.844" in drawn
    assert "0.029" in drawn
    alone = batch.zero_shot[0]._repr_html_()
    assert (alone.count("<tr>"), alone.count("background:")) == (3, 3)
    assert batch._repr_html_() == "".join(one._repr_html_() for one in batch)
    many = Prediction.stack([batch[0]] * 20)
    assert many._repr_html_().count("<table>") == 8


def test_how_the_bars_of_a_notebook_look():
    logits = torch.tensor([0.75, 0.25]).log()
    drawn = Prediction(("cat", "dog"), logits, before=Prediction(("cat", "dog"), logits.flip(0)))._repr_html_()
    assert re.findall(r"background:(#\w+);height:9px;width:(\d+)px", drawn) == [
        ("#b0b7c3", "60"), ("#2b6cb0", "180"), ("#b0b7c3", "180"), ("#2b6cb0", "60"),
    ]  # fmt: skip
    assert re.findall(r"font-weight:(\w+)\">(\w+)<", drawn) == [("bold", "cat"), ("normal", "dog")]
    assert "gray: zero-shot, blue: this method<" in drawn
    assert ">zero-shot<" in Prediction(("cat", "dog"), logits)._repr_html_()


def test_a_few_of_many_classes_are_shown():
    names = tuple("abcdefghij")
    before = Prediction(names, torch.arange(10.0))
    one = Prediction(names, -torch.arange(10.0), before=before)
    assert [name for name, _ in one.top()] == ["a", "b", "c", "d", "e"]
    assert re.findall(r"'(\w)'", repr(one)) == ["a", "b", "c", "j"]
    assert re.findall(r">(\w)</td>", one._repr_html_()) == ["a", "b", "c", "d", "e", "j", "i", "h"]


def test_zero_shot_of_zero_shot_is_itself():
    batch = batch_of_three()
    assert batch.zero_shot is batch.before
    assert batch.before.zero_shot is batch.before
    assert [one.zero_shot.label for one in batch] == batch.zero_shot.labels
