"""The figure of one prediction: bars of classes, and lines of views."""

import pytest
import torch
from support.comparisons import NAMES, features_of, images_of, setting

import tpt_lib
from tpt_lib.plots import plot_prediction
from tpt_lib.plots.figure import AFTER, RIGHT


def case():
    """A prediction, and the logits of its views before and after."""
    model, prompts = setting()
    features = features_of(images_of()[0], n_views=20)
    said = tpt_lib.tpt_predict(model, prompts, features)
    texts = [tpt_lib.encode_prompts(model, prompts, context) for context in (None, said.context)]
    return said, *(tpt_lib.class_logits(model, features, text) for text in texts)


def test_bars_are_the_probabilities_before_and_after():
    said, before, after = case()
    picture, classes, *_ = plot_prediction(said, images_of()[0], before, after, truth="dog").axes
    assert picture.get_title() == "dog"
    assert torch.equal(torch.from_numpy(picture.images[0].get_array()).permute(2, 0, 1), images_of()[0])
    shown = [tick.get_text() for tick in classes.get_yticklabels()]
    assert sorted(shown) == sorted(NAMES)
    bars = {bars.get_label(): [bar.get_width() for bar in bars] for bars in classes.containers}
    for label, one in {"zero-shot": said.zero_shot, "after TPT": said}.items():
        assert bars[label] == pytest.approx([one.probs[NAMES.index(name)].item() for name in shown])
    assert bars["zero-shot"] != pytest.approx(bars["after TPT"], abs=1e-3)
    assert [tick.get_color() == RIGHT for tick in classes.get_yticklabels()] == [name == "dog" for name in shown]
    assert [text.get_text() for text in classes.get_legend().get_texts()] == ["zero-shot", "after TPT"]


def test_lines_are_the_views_and_the_selected_ones_are_blue():
    said, before, after = case()
    figure = plot_prediction(said, images_of()[0], before, after)
    for axes, logits, word in zip(figure.axes[2:], (before, after), ("before", "after"), strict=True):
        assert axes.get_title() == f"20 views {word}, the 2 selected in blue"
        drawn = {tuple(line.get_ydata()): line.get_color() for line in axes.lines}
        probs = [tuple(row) for row in logits.softmax(-1).tolist()]
        assert set(drawn) == set(probs)
        assert {probs.index(y) for y, color in drawn.items() if color == AFTER} == set(said.selected.tolist())
        assert axes.get_ylim()[1] >= logits.softmax(-1).max()


def test_only_the_likeliest_are_shown():
    said, before, after = case()
    classes = plot_prediction(said, images_of()[0], before, after, top=2).axes[1]
    highest = said.probs.maximum(said.zero_shot.probs).topk(2).indices.tolist()
    assert [tick.get_text() for tick in classes.get_yticklabels()] == [NAMES[i] for i in reversed(highest)]


@pytest.mark.usefixtures("no_shape_checks")
def test_what_cannot_be_drawn():
    said, before, after = case()
    for wrong in (said.zero_shot, tpt_lib.Prediction.stack([said, said])):
        with pytest.raises(
            ValueError, match="plot_prediction: prediction must be that of one image before and after tuning"
        ):
            plot_prediction(wrong, images_of()[0], before, after)
    with pytest.raises(ValueError, match=r"after must be logits of the views \(N, 3\), but got shape \(20, 2\)"):
        plot_prediction(said, images_of()[0], before, after[:, :2])
