"""Accuracy over cost: where the points are, and that names can be read."""

import itertools

import pytest
import torch

from tpt_lib.evaluation import Table
from tpt_lib.plots import plot_methods

CLOSE = {"zero-shot": (0.685, 0.0043), "averaged prediction": (0.73, 0.0028), "TPT": (0.7, 0.26), "C-TPT": (0.7, 0.25),
         "O-TPT": (0.7, 0.255), "majority vote": (0.7255, 0.003), "VTE": (0.73, 0.0028), "ZERO": (0.725, 0.003)}  # fmt: skip


def table_of(points):
    return Table(tuple({"method": name, "accuracy": a, "seconds": s} for name, (a, s) in points.items()))


def test_a_point_per_method_and_a_line_for_zero_shot():
    (axes,) = plot_methods(table_of(CLOSE)).axes
    (points,) = axes.collections
    want = torch.tensor([[1000 * s, 100 * a] for a, s in CLOSE.values()])
    torch.testing.assert_close(torch.tensor(points.get_offsets().tolist()), want)
    assert set(axes.lines[0].get_ydata()) == {68.5}
    assert axes.get_xscale() == "log"


def test_names_do_not_overlap():
    (axes,) = plot_methods(table_of(CLOSE)).axes
    names = [text for text in axes.texts if text.get_text()]
    assert sorted(text.get_text() for text in names) == sorted(CLOSE)
    boxes = [text.get_window_extent() for text in names]
    assert not any(one.overlaps(other) for one, other in itertools.combinations(boxes, 2))


def test_one_method_without_zero_shot():
    (axes,) = plot_methods(table_of({"TPT": (0.5, 0.1)})).axes
    assert not axes.lines
    assert [text.get_text() for text in axes.texts] == ["TPT"]


@pytest.mark.parametrize(
    "rows", [({"method": "TPT", "accuracy": None, "seconds": 1.0},), ({"lr": 1, "accuracy": 0.5},), ()]
)
def test_a_table_without_accuracies(rows):
    with pytest.raises(ValueError, match="plot_methods: table must be what compare returned for images with labels"):
        plot_methods(Table(rows))
