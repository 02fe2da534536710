"""Compute the metrics of a method's answers: accuracy, calibration, means over seeds, and the paper's averages."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from tpt_lib.evaluation.published import paper_tables
from tpt_lib.evaluation.published_names import dataset_key

__all__ = [
    "SCORES",
    "Outcomes",
    "averages",
    "calibration_error",
    "mean_std",
    "reliability",
    "require_torchmetrics",
    "scores",
]

SCORES = ("top1", "top5", "ece15", "ece20", "entropy")


@dataclass(frozen=True, eq=False)
class Outcomes:
    """A method's answers, one per sample; ``top5`` is None with fewer than five classes."""

    truth: Int[Tensor, " n"]
    index: Int[Tensor, " n"]
    confidence: Float[Tensor, " n"]
    entropy: Float[Tensor, " n"]
    top5: Int[Tensor, "n 5"] | None

    @property
    def correct(self) -> Bool[Tensor, " n"]:
        return self.index == self.truth


def scores(answers: Outcomes, *, calibrated: bool = True) -> dict[str, float | None]:
    """Return top-1, top-5 and calibration errors in percent and the mean entropy in nats. Missing values are None.

    Args:
        answers: a method's answers.
        calibrated: whether confidences are probabilities (default True). Otherwise calibration errors are missing.
    """
    if not len(answers.truth):
        return dict.fromkeys(SCORES)
    require_torchmetrics()
    from torchmetrics.aggregation import MeanMetric

    def mean(values: Tensor) -> float:
        return MeanMetric().set_dtype(torch.double)(values.double()).item()

    bins = {"ece15": 15, "ece20": 20} if calibrated else {}
    errors = {name: 100 * calibration_error(answers.confidence, answers.correct, bins=n) for name, n in bins.items()}
    return {
        "top1": 100 * mean(answers.correct),
        "top5": None if answers.top5 is None else 100 * mean((answers.top5 == answers.truth[:, None]).any(1)),
        "ece15": errors.get("ece15"),
        "ece20": errors.get("ece20"),
        "entropy": mean(answers.entropy),
    }


def calibration_error(confidence: Float[Tensor, " n"], correct: Bool[Tensor, " n"], *, bins: int = 15) -> float:
    """Return the expected calibration error: the mean distance of accuracy from confidence over bins of equal width.

    Convention: as in torchmetrics, a bin includes its lower edge, and a confidence of exactly 1 has a bin of its own.

    Args:
        confidence: probability of the predicted class ``(N,)``.
        correct: whether the predicted class is the true one ``(N,)``.
        bins: number of bins (default 15).

    Returns:
        The error, from 0 to 1.

    Raises:
        ValueError: if there are no samples, or a confidence is not between 0 and 1.

    >>> round(calibration_error(torch.tensor([0.9, 0.9, 0.6]), torch.tensor([True, False, True])), 4)
    0.4
    """
    if confidence.shape != correct.shape or not len(confidence) or not ((confidence >= 0) & (confidence <= 1)).all():
        raise ValueError(
            "calibration_error: wanted one or more confidences from 0 to 1, each with whether it was correct, but got "
            f"confidences of shape {tuple(confidence.shape)}, some of them out of range or NaN, and {tuple(correct.shape)}"
        )
    require_torchmetrics()
    from torchmetrics.functional.classification import binary_calibration_error

    return binary_calibration_error(confidence, correct.long(), n_bins=bins).item()


def reliability(
    confidence: Float[Tensor, " n"], correct: Bool[Tensor, " n"], *, bins: int = 15
) -> tuple[Float[Tensor, " bins"], Float[Tensor, " bins"], Int[Tensor, " bins"]]:
    """Return the mean confidence, the accuracy and the number of samples of each bin.

    The means of an empty bin are NaN. A confidence of 1 is in the last bin.
    """
    edges = torch.linspace(0, 1, bins + 1, dtype=confidence.dtype)
    index = torch.bucketize(confidence, edges[1:-1], right=True)
    count = torch.bincount(index, minlength=bins)
    sums = [torch.bincount(index, values.double(), minlength=bins) for values in (confidence, correct)]
    return sums[0] / count, sums[1] / count, count


def mean_std(values: Sequence[float | None]) -> tuple[float | None, float | None]:
    """Return mean and sample standard deviation over seeds. Missing values are None, as is the deviation of one seed."""
    known = [value for value in values if value is not None]
    if not known:
        return None, None
    return statistics.fmean(known), statistics.stdev(known) if len(known) > 1 else None


def averages(accuracies: Mapping[str, Mapping[int, float]]) -> dict[str, dict[int, float]]:
    """Return the averages of the paper's tables for each seed.

    Args:
        accuracies: for each dataset, the accuracy of each seed.

    Returns:
        For each average whose datasets are all present, its value for each seed that all of them have.

    >>> four = [f"bongard-hoi/{a}_act_{o}_obj" for a in ("seen", "unseen") for o in ("seen", "unseen")]
    >>> averages({name: {0: accuracy} for name, accuracy in zip(four, (60.0, 61.0, 62.0, 65.0))})
    {'average: bongard-hoi': {0: 62.0}}
    """
    known = {dataset_key(name): of_seeds for name, of_seeds in accuracies.items()}
    found = {}
    for name, members in averaged().items():
        if all(member in known for member in members):
            seeds = set.intersection(*(set(known[member]) for member in members))
            found[name] = {seed: statistics.fmean(known[member][seed] for member in members) for seed in sorted(seeds)}
    return {name: of_seeds for name, of_seeds in found.items() if of_seeds}


def averaged() -> dict[str, list[str]]:
    """Return the datasets of each of the paper's averages."""
    shifts, fine_grained, bongard = (
        [dataset_key(name) for name in table.columns if not name.startswith("average")] for table in paper_tables()[:3]
    )
    return {
        "average: imagenet": shifts,
        "average: ood": shifts[1:],
        "average: fine-grained": fine_grained,
        "average: bongard-hoi": bongard,
    }


def require_torchmetrics() -> None:
    """Raise an ImportError that says what to install if torchmetrics is missing. Runs call it before the work."""
    try:
        import torchmetrics  # noqa: F401
    except ImportError as error:
        raise ImportError('metrics need torchmetrics: pip install "tpt_lib[evaluate]"') from error
