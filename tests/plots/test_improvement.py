"""The figure of relative improvements."""

import math

import pytest
from support.runs import FOUR, header, report

import tpt_lib


def test_improvement_draws_the_matrix():
    accuracies = {("dtd", "pets"): 30.0, ("dtd", "cars"): 40.0, ("TPT", "pets"): 60.0}
    figure = tpt_lib.plots.plot_improvement(
        tpt_lib.paper.relative_improvement(accuracies, {"pets": 50.0, "cars": 40.0})
    )
    axes = figure.axes[0]
    drawn = axes.images[0].get_array()
    assert drawn.filled(math.nan).tolist()[0] == pytest.approx([-0.4, 0, -0.2])
    assert drawn.mask.tolist() == [[False] * 3, [False, True, False]]
    assert axes.images[0].get_clim() == (-0.4, 0.4)
    assert [text.get_text() for text in axes.texts] == ["-0.40", "+0.00", "-0.20", "+0.20", "+0.20"]
    assert [label.get_text() for label in axes.get_xticklabels()] == ["pets", "cars", "average"]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["dtd", "TPT"]
    with pytest.raises(ValueError, match="does not come from relative_improvement; its columns are"):
        tpt_lib.plots.plot_improvement(report((header(), FOUR)).table())
