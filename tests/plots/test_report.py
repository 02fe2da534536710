"""Figures of a report."""

import statistics

import pytest
import torch
from support.runs import FOUR, header, many, report

import tpt_lib


def test_reliability_draws_the_bins():
    found = report((header(), FOUR), (header("dtd"), FOUR))
    figure = tpt_lib.plots.plot_reliability(found, bins=10)
    assert len(figure.axes) == 8
    above, below = figure.axes[:2]
    solid, under, over = ([bar.get_height() for bar in above.patches[i : i + 10]] for i in (0, 10, 20))
    assert solid == pytest.approx([0, 0, 0, 0, 0, 0.55, 0, 0, 0, 0.9], abs=1e-6)
    assert under == pytest.approx([0, 0, 0, 0, 0, 0.45, 0, 0, 0, 0.1], abs=1e-6)
    assert over == pytest.approx([0, 0, 0, 0, 0, 0, 0.6, 0, 0.8, 0], abs=1e-6)
    assert [bar.get_y() for bar in above.patches[10:20]] == solid == [bar.get_y() for bar in above.patches[20:30]]
    assert [bar.get_height() for bar in below.patches] == [0, 0, 0, 0, 0, 25, 25, 0, 25, 25]
    error = 100 * tpt_lib.evaluation.calibration_error(
        torch.tensor([0.9, 0.6, 0.8, 0.55]), torch.tensor([True, False, False, True]), bins=10
    )
    assert above.texts[0].get_text() == f"ECE {error:.1f}%"
    assert [axes.get_title() for axes in figure.axes[::2]] == [
        "pets\nzero-shot",
        "pets\nTPT",
        "dtd\nzero-shot",
        "dtd\nTPT",
    ]


def test_accuracies_draw_bars_errors_and_the_papers():
    top = header(methods=["TPT"], n=20, seeds=(0, 1))
    other = header("mine", n=4)
    figure = tpt_lib.plots.plot_accuracies(report((top, [*many(10), *many(14, seed=1)]), (other, FOUR)))
    (axes,) = figure.axes
    heights = {
        bars.get_label(): [bar.get_height() for bar in bars] for bars in axes.containers if hasattr(bars, "patches")
    }
    assert heights == {"TPT": pytest.approx([60, 75]), "zero-shot": [50]}
    spans = [segment[:, 1].tolist() for lines in axes.collections for segment in lines.get_segments()]
    deviation = statistics.stdev([50, 70])
    assert pytest.approx([60 - deviation, 60 + deviation]) in spans
    assert [84.42, 84.42] in spans
    assert [label.get_text() for label in axes.get_xticklabels()] == ["pets", "mine"]
    assert {text.get_text() for text in figure.legends[0].get_texts()} == {"TPT", "zero-shot", "paper"}


def test_votes_have_no_reliability():
    found = report((header(not_probabilities=["TPT"]), FOUR))
    drawn, empty = tpt_lib.plots.plot_reliability(found).axes[::2]
    assert drawn.patches
    assert not empty.patches
    assert [text.get_text() for text in empty.texts] == ["votes are not\nprobabilities"]
    votes = report((header(not_probabilities=["TPT", "zero-shot"]), FOUR))
    assert not any(axes.patches for axes in tpt_lib.plots.plot_reliability(votes).axes)
