"""The gallery: images with what each method said."""

import pytest
import torch

from tpt_lib.plots import plot_gallery
from tpt_lib.plots.figure import RIGHT, WRONG

IMAGES = list(torch.rand(5, 3, 8, 8))


def test_answers_in_the_color_of_their_truth():
    truths = ["a", "b", "c", "d", "a class with a name that is longer than a line"]
    answers = {"zero-shot": ["a", "a", "a", "a", "a"], "TPT": truths}
    figure = plot_gallery(IMAGES, truths, answers)
    assert [axes.get_title() for axes in figure.axes] == ["a", "b", "c", "d", "a class with a name that is longe…"]
    assert [text.get_text() for text in figure.texts[:4]] == ["zero-shot: a", "TPT: a", "zero-shot: a", "TPT: b"]
    assert [text.get_color() for text in figure.texts[:4]] == [RIGHT, RIGHT, WRONG, RIGHT]
    assert figure.texts[-1].get_color() == RIGHT  # compared in full, not as shown


def test_everything_is_inside_and_apart():
    figure = plot_gallery(IMAGES, ["a"] * 5, {name: ["b"] * 5 for name in ("one", "two", "three")})
    figure.draw_without_rendering()
    boxes = [axes.get_tightbbox() for axes in figure.axes] + [text.get_window_extent() for text in figure.texts]
    for at, box in enumerate(boxes):
        assert 0 <= box.x0 < box.x1 <= figure.bbox.x1
        assert 0 <= box.y0 < box.y1 <= figure.bbox.y1
        assert not any(box.overlaps(other) for other in boxes[at + 1 :])


@pytest.mark.parametrize(("images", "truths"), [(IMAGES, ["a"]), ([], [])])
def test_what_does_not_fit(images, truths):
    with pytest.raises(ValueError, match=f"one truth and one answer .* but got {len(images)} images"):
        plot_gallery(images, truths, {"TPT": truths})
