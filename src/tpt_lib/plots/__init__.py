"""Draw results. Each function returns a matplotlib ``Figure`` to show or save."""

from tpt_lib.plots.bongard import plot_bongard
from tpt_lib.plots.gallery import plot_gallery
from tpt_lib.plots.improvement import plot_improvement
from tpt_lib.plots.methods import plot_methods
from tpt_lib.plots.prediction import plot_prediction
from tpt_lib.plots.report import plot_accuracies, plot_reliability
from tpt_lib.plots.stream import plot_stream
from tpt_lib.plots.sweep import plot_sweep

__all__ = [
    "plot_accuracies",
    "plot_bongard",
    "plot_gallery",
    "plot_improvement",
    "plot_methods",
    "plot_prediction",
    "plot_reliability",
    "plot_stream",
    "plot_sweep",
]
