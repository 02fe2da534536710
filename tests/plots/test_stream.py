"""The figure of accuracy over a stream."""

import pytest
import torch
from support.runs import FOUR, row, said

import tpt_lib

RIGHT = [True, False, False, True, True]


def lines(figure):
    return [(line.get_label(), line.get_xdata(), line.get_ydata()) for line in figure.axes[0].lines]


def test_the_running_mean_and_the_mean_so_far():
    recent, so_far = lines(tpt_lib.plots.plot_stream({"TDA": RIGHT}, window=2))
    assert recent[0] == "TDA: 60.0"
    assert list(recent[1]) == [2, 3, 4, 5]
    assert list(recent[2]) == [50, 0, 50, 100]
    assert so_far[0].startswith("_"), "it is not in the legend"
    assert list(so_far[1]) == [2, 3, 4, 5]
    assert list(so_far[2]) == pytest.approx([50, 100 / 3, 50, 60])


@pytest.mark.parametrize("values", [RIGHT, torch.tensor(RIGHT), torch.tensor(RIGHT).float()])
def test_what_it_takes(values):
    figure = tpt_lib.plots.plot_stream({"TDA": values, "DPE": [True] * 5}, window=1, title="sorted by class")
    assert [name for name, _, _ in lines(figure)][::2] == ["TDA: 60.0", "DPE: 100.0"]
    assert figure.axes[0].get_title() == "sorted by class"
    assert len({line.get_color() for line in figure.axes[0].lines}) == 2


def test_fewer_images_than_the_window():
    recent, _ = lines(tpt_lib.plots.plot_stream({"TDA": RIGHT}))
    assert list(recent[1]) == [5]
    assert list(recent[2]) == pytest.approx([60])
    figure = tpt_lib.plots.plot_stream({"TDA": RIGHT})
    assert "last 5, dashed: all so far" in figure.axes[0].get_ylabel()


def test_rows_of_a_run():
    """What failed and what has no truth is left out."""
    failed = {"kind": "row", "seed": 0, "sample": 4, "truth": 0, "error": "ImageError: gone"}
    unknown = row(5, None, zero_shot=said(0), TPT=said(0))
    found = lines(tpt_lib.plots.plot_stream([*FOUR, failed, unknown], window=4))
    assert [name for name, _, _ in found][::2] == ["zero-shot: 50.0", "TPT: 75.0"]
    with pytest.raises(
        ValueError, match=r"these are the rows of 2 streams, with the seeds \[0, 1\]; pass those of one"
    ):
        tpt_lib.plots.plot_stream([*FOUR, row(0, 0, seed=1, TPT=said(0))])


def test_rows_are_drawn_by_their_positions():
    moved = [{**one, "position": 3 - i} for i, one in enumerate(FOUR)]
    want, found = (lines(tpt_lib.plots.plot_stream(rows, window=2)) for rows in (FOUR[::-1], moved))
    assert [list(y) for _, _, y in found] == [list(y) for _, _, y in want]
    assert list(found[2][2]) != list(lines(tpt_lib.plots.plot_stream(FOUR, window=2))[2][2])


def test_what_cannot_be_drawn():
    with pytest.raises(ValueError, match="plot_stream: window must be at least 1, but got 0"):
        tpt_lib.plots.plot_stream({"TDA": RIGHT}, window=0)
    for empty in ({}, [], {"TDA": []}):
        with pytest.raises(
            ValueError, match="there must be at least one method, each with at least one image, but got"
        ):
            tpt_lib.plots.plot_stream(empty)
