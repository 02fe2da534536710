"""Metrics against torchmetrics, a plain program and by hand."""

import math
import sys

import numpy as np
import pytest
import torch
from torchmetrics.classification import BinaryCalibrationError, MulticlassAccuracy, MulticlassCalibrationError

import tpt_lib
from tpt_lib.evaluation.metrics import Outcomes, averages, calibration_error, mean_std, reliability, scores

SHIFTS = ["imagenet", "imagenet-a", "imagenet-v2", "imagenet-r", "imagenet-sketch"]


def plain_ece(confidence, correct, bins):
    """Bin by bin in numpy; a confidence of 1 has a bin of its own."""
    edges = np.linspace(0, 1, bins + 1, dtype=np.float32)
    total = 0.0
    for low, high in zip(edges, [*edges[1:], np.inf], strict=True):
        inside = (confidence >= low) & (confidence < high)
        if inside.any():
            total += inside.mean() * abs(correct[inside].mean() - confidence[inside].mean(dtype=np.float64))
    return total


@pytest.mark.parametrize("bins", [15, 20])
def test_calibration_error_is_the_plain_one_and_that_of_many_classes(bins):
    logits = 3 * torch.randn(500, 7)
    logits[:20] *= 100  # some confidences of exactly 1
    truth = torch.randint(7, (500,))
    probs = logits.softmax(-1)
    confidence, index = probs.max(-1)
    assert (confidence == 1).any()
    options = {} if bins == 15 else {"bins": bins}  # 15 is the default
    ours = calibration_error(confidence, index == truth, **options)
    assert ours == pytest.approx(plain_ece(confidence.numpy(), (index == truth).numpy(), bins), abs=1e-6)
    assert ours == pytest.approx(MulticlassCalibrationError(7, n_bins=bins, norm="l1")(probs, truth).item(), abs=1e-7)
    assert ours == BinaryCalibrationError(n_bins=bins, norm="l1")(confidence, (index == truth).long()).item()
    assert 0.05 < ours < 0.9


def test_calibration_error_by_hand():
    confidence = torch.tensor([0.95, 0.95, 0.95, 0.62, 0.62])
    correct = torch.tensor([True, True, False, True, False])
    by_hand = 3 / 5 * abs(2 / 3 - 0.95) + 2 / 5 * abs(1 / 2 - 0.62)
    assert calibration_error(confidence, correct) == pytest.approx(by_hand, abs=1e-6)
    means, accuracies, counts = reliability(confidence, correct, bins=5)
    assert counts.tolist() == [0, 0, 0, 2, 3]
    assert accuracies[3:].tolist() == pytest.approx([1 / 2, 2 / 3])
    assert means[3:].tolist() == pytest.approx([0.62, 0.95])
    assert means[:3].isnan().all()
    assert reliability(torch.tensor([1.0]), torch.tensor([True]), bins=5)[2].tolist() == [0, 0, 0, 0, 1]


@pytest.mark.usefixtures("no_shape_checks")
@pytest.mark.parametrize(
    ("confidence", "correct"),
    [([], []), ([0.5], [True, False]), ([-0.1], [True]), ([0.9, 1.1], [True] * 2), ([math.nan], [True])],
)
def test_confidences_that_cannot_be_used(confidence, correct):
    with pytest.raises(ValueError, match=r"^calibration_error: wanted one or more confidences from 0 to 1"):
        calibration_error(torch.tensor(confidence), torch.tensor(correct, dtype=torch.bool))


def test_confidences_of_0_and_1_can_be_used():
    found = calibration_error(torch.tensor([0.0, 1.0]), torch.tensor([False, False]))
    assert found == pytest.approx(0.5)


def test_bins_of_a_reliability_diagram():
    """A bin includes its lower edge, and bins without samples are there, too."""
    confidence, correct = torch.tensor([0.25, 0.3, 0.5]), torch.tensor([True, False, True])
    means, accuracies, counts = reliability(confidence, correct, bins=4)
    assert counts.tolist() == [0, 2, 1, 0]
    assert means.dtype == accuracies.dtype == torch.float64
    torch.testing.assert_close(means, torch.tensor([math.nan, 0.275, 0.5, math.nan]).double(), equal_nan=True)
    assert accuracies[1:3].tolist() == [0.5, 1.0]
    assert accuracies[[0, 3]].isnan().all()
    assert len(reliability(confidence, correct)[2]) == 15
    assert reliability(torch.tensor([0.2], dtype=torch.double), torch.tensor([True]), bins=5)[2].tolist() == [
        0,
        1,
        0,
        0,
        0,
    ]


def test_scores_are_those_of_torchmetrics_on_logits():
    logits = torch.randn(300, 9)
    probs = logits.softmax(-1)
    truth = probs.multinomial(1)[:, 0]  # calibrated, so that the bins matter
    entropy = -(probs * probs.log()).sum(-1)
    top5 = probs.topk(5).indices
    found = scores(Outcomes(truth, top5[:, 0], probs.max(-1).values, entropy, top5))
    for k in (1, 5):
        assert found[f"top{k}"] == pytest.approx(
            100 * MulticlassAccuracy(9, top_k=k, average="micro")(logits, truth).item()
        )
    assert found["ece15"] == pytest.approx(
        100 * MulticlassCalibrationError(9, n_bins=15)(probs, truth).item(), abs=1e-4
    )
    assert found["ece20"] == pytest.approx(
        100 * MulticlassCalibrationError(9, n_bins=20)(probs, truth).item(), abs=1e-4
    )
    assert abs(found["ece15"] - found["ece20"]) > 0.1
    assert {type(value) for value in found.values()} == {float}
    assert found["entropy"] == pytest.approx(entropy.double().mean().item(), rel=1e-12)


def test_scores_that_are_missing():
    answers = Outcomes(torch.tensor([1, 0]), torch.tensor([1, 1]), torch.tensor([3.0, 5.0]), torch.ones(2), None)
    assert scores(answers, calibrated=False) == {
        "top1": 50.0,
        "top5": None,
        "ece15": None,
        "ece20": None,
        "entropy": 1.0,
    }
    none = torch.zeros(0)
    assert scores(Outcomes(none.long(), none.long(), none, none, None)) == dict.fromkeys(
        ["top1", "top5", "ece15", "ece20", "entropy"]
    )


def test_without_torchmetrics_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "torchmetrics", None)
    confidence, correct = torch.tensor([0.5]), torch.tensor([True])
    answers = Outcomes(torch.tensor([0]), torch.tensor([0]), confidence, confidence, None)
    for call in (lambda: scores(answers, calibrated=False), lambda: calibration_error(confidence, correct)):
        with pytest.raises(ImportError, match=r"pip install \"tpt_lib\[evaluate\]\""):
            call()


def test_mean_and_deviation_over_seeds():
    assert mean_std([50.0, 52.0, 57.0]) == (53.0, pytest.approx(math.sqrt((9 + 1 + 16) / 2)))
    assert mean_std([50.0, 52.0]) == (51.0, pytest.approx(math.sqrt(2)))
    assert mean_std([50.0]) == (50.0, None)
    assert mean_std([None, 50.0]) == (50.0, None)
    assert mean_std([None]) == (None, None)


def test_averages_need_all_of_their_datasets_and_are_made_seed_by_seed():
    two_seeds = {name: {0: 10.0 * i, 1: 10.0 * i + 5} for i, name in enumerate(SHIFTS)}
    assert averages(two_seeds) == {"average: imagenet": {0: 20.0, 1: 25.0}, "average: ood": {0: 25.0, 1: 30.0}}
    assert averages({**two_seeds, "imagenet-r": {1: 0.0}})["average: ood"] == {1: (15 + 25 + 0 + 45) / 4}
    backwards = averages({name: dict(reversed(of_seeds.items())) for name, of_seeds in two_seeds.items()})
    assert list(backwards["average: ood"]) == [0, 1]
    del two_seeds["imagenet"]
    assert list(averages(two_seeds)) == ["average: ood"]
    del two_seeds["imagenet-a"]
    assert averages(two_seeds) == {}


def test_the_papers_averages_are_averages():
    """Which finds nearly every wrong digit of the data."""
    wrong = set()
    for table in tpt_lib.paper.paper_tables()[:9]:
        for line in table.rows:
            known = dict(zip(table.columns, line["values"], strict=True))
            for name, mean in averages({column: {0: value} for column, value in known.items()}).items():
                if abs(known[name] - mean[0]) > 0.011:
                    wrong.add((table.number, line["model"], line["method"], name))
    assert not wrong
