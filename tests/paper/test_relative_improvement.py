"""The matrix of figure 3 from accuracies."""

import pytest

import tpt_lib


def test_relative_improvement_is_that_of_figure_3():
    accuracies = {("dtd", "flowers102"): 33.41, ("dtd", "pets"): 50.0, ("TPT", "flowers102"): 62.69}
    table = tpt_lib.paper.relative_improvement(accuracies, {"flowers102": 61.75, "pets": 40.0})
    dtd, tpt = table.rows
    assert dtd["flowers102"] == pytest.approx((33.41 - 61.75) / 61.75)
    assert round(dtd["flowers102"], 2) == -0.46
    assert dtd["pets"] == 0.25
    assert dtd["average"] == pytest.approx((dtd["flowers102"] + 0.25) / 2)
    assert tpt["pets"] is None
    assert tpt["average"] == tpt["flowers102"] > 0


@pytest.mark.parametrize(
    ("accuracies", "base", "message"),
    [
        ({}, {"a": 1.0}, "no accuracies"),
        ({("a", "b"): 1.0}, {"a": 1.0}, "no zero-shot accuracy for b"),
        ({("a", "b"): 1.0}, {"b": 0.0}, r"above 0, but those of \['b'\]"),
        ({("a", "average"): 1.0}, {"average": 1.0}, "names of columns"),
    ],
)
def test_relative_improvement_says_what_is_wrong(accuracies, base, message):
    with pytest.raises(ValueError, match=message):
        tpt_lib.paper.relative_improvement(accuracies, base)
