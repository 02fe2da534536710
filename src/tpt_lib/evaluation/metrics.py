"""From what a method said of each sample to numbers: accuracy, calibration, averages, and tests between two methods."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from tpt_lib.evaluation.published import dataset_key, paper_tables
from tpt_lib.evaluation.run_file import truth_index

__all__ = ["calibration_error"]

SCORES = ("top1", "top5", "ece15", "ece20", "entropy")


@dataclass(frozen=True, eq=False)
class Outcomes:
    """What a method said of the samples of a run, one value a sample; ``top5`` only where there are five classes."""

    truth: Int[Tensor, " n"]
    index: Int[Tensor, " n"]
    confidence: Float[Tensor, " n"]
    entropy: Float[Tensor, " n"]
    top5: Int[Tensor, "n 5"] | None

    @property
    def correct(self) -> Bool[Tensor, " n"]:
        return self.index == self.truth


def outcomes(rows: Iterable[Mapping[str, Any]], method: str, n_classes: int) -> Outcomes:
    """A method's outcomes from the rows of a run file, without those that are errors."""
    good = [row for row in rows if "error" not in row]
    said = [row["methods"][method] for row in good]
    return Outcomes(
        truth=torch.tensor([truth_index(row["truth"]) for row in good], dtype=torch.long),
        index=torch.tensor([one["index"] for one in said], dtype=torch.long),
        confidence=torch.tensor([one["confidence"] for one in said], dtype=torch.float).clamp(0, 1),
        entropy=torch.tensor([one["entropy"] for one in said], dtype=torch.float),
        top5=torch.tensor([one["top5"] for one in said], dtype=torch.long).reshape(-1, 5) if n_classes >= 5 else None,
    )


def scores(said: Outcomes) -> dict[str, float | None]:
    """Top-1, top-5 and calibration errors in percent, mean entropy in nats; None for what there is not."""
    if not len(said.truth):
        return dict.fromkeys(SCORES)
    _torchmetrics()
    from torchmetrics.aggregation import MeanMetric

    def mean(values: Tensor) -> float:
        return MeanMetric().set_dtype(torch.double)(values.double()).item()

    return {
        "top1": 100 * mean(said.correct),
        "top5": None if said.top5 is None else 100 * mean((said.top5 == said.truth[:, None]).any(1)),
        "ece15": 100 * calibration_error(said.confidence, said.correct, bins=15),
        "ece20": 100 * calibration_error(said.confidence, said.correct, bins=20),
        "entropy": mean(said.entropy),
    }


def calibration_error(confidence: Float[Tensor, " n"], correct: Bool[Tensor, " n"], *, bins: int = 15) -> float:
    """The expected calibration error, from 0 to 1: how far accuracy lies from confidence, over bins of equal width.

    Convention: torchmetrics'. A bin takes its lower edge; a confidence of exactly 1 has a bin of its own.

    Args:
        confidence: the probability of the predicted class.
        correct: whether that class was the true one.
        bins: their number.

    >>> round(calibration_error(torch.tensor([0.9, 0.9, 0.6]), torch.tensor([True, False, True])), 4)
    0.4
    """
    _torchmetrics()
    from torchmetrics.functional.classification import binary_calibration_error

    return binary_calibration_error(confidence, correct.long(), n_bins=bins, norm="l1").item()


def reliability(
    confidence: Float[Tensor, " n"], correct: Bool[Tensor, " n"], *, bins: int = 15
) -> tuple[Float[Tensor, " bins"], Float[Tensor, " bins"], Int[Tensor, " bins"]]:
    """Mean confidence, accuracy and number of samples of each bin; NaN for the means of an empty one. 1 is in the last."""
    edges = torch.linspace(0, 1, bins + 1, dtype=confidence.dtype)
    index = torch.bucketize(confidence, edges[1:-1], right=True)
    count = torch.bincount(index, minlength=bins)
    sums = [torch.bincount(index, values.double(), minlength=bins) for values in (confidence, correct)]
    return sums[0] / count, sums[1] / count, count


def mean_std(values: Sequence[float | None]) -> tuple[float | None, float | None]:
    """Mean and sample standard deviation over seeds; of one seed there is no deviation."""
    known = [value for value in values if value is not None]
    if not known:
        return None, None
    return statistics.fmean(known), statistics.stdev(known) if len(known) > 1 else None


def averages(accuracies: Mapping[str, Mapping[int, float]]) -> dict[str, dict[int, float]]:
    """The averages of the paper's tables for each seed, as far as all of their datasets are there.

    Args:
        accuracies: for each dataset the accuracy of each seed.

    >>> four = [f"bongard-hoi/{a}_act_{o}_obj" for a in ("seen", "unseen") for o in ("seen", "unseen")]
    >>> averages({name: {0: accuracy} for name, accuracy in zip(four, (60.0, 61.0, 62.0, 65.0))})
    {'average: bongard-hoi': {0: 62.0}}
    """
    known = {dataset_key(name): of_seeds for name, of_seeds in accuracies.items()}
    found = {}
    for name, members in averaged().items():
        if all(member in known for member in members):
            seeds = [seed for seed in known[members[0]] if all(seed in known[member] for member in members)]
            found[name] = {seed: statistics.fmean(known[member][seed] for member in members) for seed in seeds}
    return {name: of_seeds for name, of_seeds in found.items() if of_seeds}


def averaged() -> dict[str, list[str]]:
    """The paper's averages and the datasets each is over."""
    shifts, fine_grained, bongard = (
        [dataset_key(name) for name in table.columns if not name.startswith("average")] for table in paper_tables()[:3]
    )
    return {
        "average: imagenet": shifts,
        "average: ood": shifts[1:],
        "average: fine-grained": fine_grained,
        "average: bongard-hoi": bongard,
    }


def _torchmetrics() -> None:
    try:
        import torchmetrics  # noqa: F401
    except ImportError as error:
        raise ImportError('metrics need torchmetrics: pip install "tpt_lib[evaluate]"') from error
