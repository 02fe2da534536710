"""What all figures share."""

import sys

import pytest
import torch
from matplotlib.colors import to_hex

from tpt_lib.plots.figure import new_figure, show_pixels


def test_a_figure_leaves_matplotlibs_state_alone():
    sys.modules.pop("matplotlib.pyplot", None)
    figure = new_figure(3.0, 2.0)
    assert figure.get_size_inches().tolist() == [3, 2]
    assert "matplotlib.pyplot" not in sys.modules


def test_a_missing_matplotlib_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(ImportError, match=r'pip install "tpt_lib\[plots\]"'):
        new_figure(3.0, 2.0)


def test_pixels_are_framed_and_titled():
    axes = new_figure(3.0, 2.0).subplots()
    image = torch.rand(3, 4, 6)
    show_pixels(axes, image, "cat", "#123456")
    drawn = torch.from_numpy(axes.images[0].get_array()).permute(2, 0, 1)
    assert torch.equal(drawn, (image * 255).round().byte())
    assert (axes.get_title(), axes.title.get_color()) == ("cat", "#123456")
    assert {to_hex(side.get_edgecolor()) for side in axes.spines.values()} == {"#123456"}
