"""Figures of sweeps."""

import pytest
from support.runs import FOUR, header, report

from tpt_lib.evaluation import Table
from tpt_lib.plots import plot_sweep


def rows_of(column, values, heights):
    rows = [{"method": "zero-shot", "lr": None, "steps": None, column: None, "accuracy": 0.4, "entropy": 2.0}]
    rows += [
        {"method": "TPT", "lr": 0.1 * i, "steps": i, column: value, "accuracy": height, "entropy": 1 - height}
        for i, (value, height) in enumerate(zip(values, heights, strict=True), start=1)
    ]
    return Table(tuple(rows), swept=column)


@pytest.mark.parametrize(("column", "label"), [("fraction", "rho"), ("views", "number of views"), ("steps", "steps")])
def test_curves(column, label):
    (axes,) = plot_sweep(rows_of(column, [1, 2, 4], [0.5, 0.7, 0.6])).axes
    curve, zero_shot = axes.lines
    assert curve.get_xydata().tolist() == [[1, 50], [2, 70], [4, 60]]
    assert set(zero_shot.get_ydata()) == {40}
    assert label in axes.get_xlabel()
    assert axes.get_ylabel() == "accuracy (%)"
    assert [tick.get_text() for tick in axes.get_xticklabels()] == ["1", "2", "4"]
    assert axes.get_xscale() == ("log" if column == "views" else "linear")


def test_bars_are_the_best_of_each_groups_grid():
    table = rows_of("group", ["prompt", "prompt", "text", "image", "image"], [0.6, 0.7, 0.5, 0.3, 0.2])
    (axes,) = plot_sweep(table).axes
    assert [bar.get_height() for bar in axes.patches] == [70, 50, 30]
    assert [text.get_text() for text in axes.texts] == [
        "70\nlr 0.2\n2 steps",
        "50\nlr 0.3\n3 steps",
        "30\nlr 0.4\n4 steps",
    ]
    without = Table(tuple({**row, "accuracy": None} for row in table.rows), swept="group")
    (axes,) = plot_sweep(without).axes
    assert [bar.get_height() for bar in axes.patches] == pytest.approx([0.3, 0.5, 0.7])
    assert axes.get_ylabel() == "mean entropy"


def test_a_table_that_is_no_sweep():
    message = "does not come from a sweep over fraction, views, steps, group; its columns are"
    with pytest.raises(ValueError, match=message):
        plot_sweep(report((header(), FOUR)).table())
