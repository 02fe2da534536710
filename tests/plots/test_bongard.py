"""The figure of a Bongard problem."""

import pytest
import torch
from matplotlib.colors import to_hex
from support.cases import model_of, problem_of

import tpt_lib
from tpt_lib.plots import plot_bongard
from tpt_lib.plots.figure import RIGHT, WRONG


def test_every_image_is_drawn_under_its_side_and_queries_under_their_verdicts():
    images = torch.randint(256, (9, 3, 30, 40), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    result = tpt_lib.bongard_tpt(model_of(), list(images[:4]), list(images[4:7]), list(images[7:]), steps=1)
    axes = plot_bongard(result).axes
    shown = [torch.from_numpy(one.images[0].get_array()).permute(2, 0, 1) for one in axes]
    assert torch.equal(torch.stack(shown), images)
    sure = [max(p, 1 - p) for p in result.probs.tolist()]
    queries = [f"query: {v}, {p:.2f}" for v, p in zip(result.verdicts, sure, strict=True)]
    assert [one.get_title() for one in axes] == ["positive"] * 4 + ["negative"] * 3 + queries
    sides = ["positive"] * 4 + ["negative"] * 3 + list(result.verdicts)
    colors = [RIGHT if side == "positive" else WRONG for side in sides]
    assert [to_hex(one.spines["top"].get_edgecolor()) for one in axes] == colors
    rows = [one.get_subplotspec().rowspan.start for one in axes]
    assert rows == [0] * 4 + [1] * 3 + [2] * 2


def test_features_cannot_be_drawn():
    result = tpt_lib.bongard_tpt(model_of(), *problem_of(0), steps=1)
    with pytest.raises(ValueError, match="was given as features; pass images to bongard_tpt to draw them"):
        plot_bongard(result)
