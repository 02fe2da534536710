"""Accuracies next to the published ones: intervals, averages, verdicts, and the page."""

import dataclasses
import math
from types import SimpleNamespace

import pytest

from tpt_lib.paper.reproduction.definitions import paper_experiments
from tpt_lib.paper.reproduction.outcome import Reproduction, Result, interval, verdict
from tpt_lib.paper.reproduction.page import page
from tpt_lib.paper.reproduction.sources import Source

pytestmark = pytest.mark.usefixtures("no_shape_checks")  # plans and jobs here have only what is read

ACCURACIES = {"imagenet": 60.7, "imagenet-a": 26.7, "imagenet-v2": 54.7, "imagenet-r": 59.1, "imagenet-sketch": 35.1}
COUNTS = {
    "imagenet": 50_000,
    "imagenet-a": 7500,
    "imagenet-v2": 10_000,
    "imagenet-r": 30_000,
    "imagenet-sketch": 50_889,
}


def reproduction(name="table1", seeds=1, part="", errors=0, **changes):
    """Results of TPT and no other row."""
    experiment = paper_experiments()[name]
    row = next(row for row in experiment.rows if row.name == "TPT")
    skipped = {one.name: "" for one in experiment.rows if one.name != "TPT"}
    plan = SimpleNamespace(experiment=experiment, skipped=skipped, model_name="RN50/openai", reward_name="")
    results = []
    for label, accuracy in {**ACCURACIES, **changes}.items():
        source = Source(label, None, part=part if label == "imagenet-r" else "")
        for seed in range(seeds):
            job = SimpleNamespace(row=row, source=source)
            results.append(Result(job, accuracy and accuracy + seed, COUNTS[label], errors))
    return {one["dataset"]: one for one in Reproduction(plan, tuple(results)).rows()}


def test_one_dataset_has_wilsons_interval():
    p, n, z = 0.267, 7500, 1.96
    bounds = [
        (p + z * z / (2 * n) + sign * z * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n))) / (1 + z * z / n)
        for sign in (-1, 1)
    ]
    assert interval([26.7], [7500]) == pytest.approx([100 * bound for bound in bounds])
    assert interval([0.0], [6])[0] == 0
    assert interval([100.0], [6])[1] == 100


def test_an_average_has_the_interval_of_independent_datasets():
    found = reproduction()["average: ood"]
    ood = [name for name in ACCURACIES if name != "imagenet"]
    assert found["ours"] == pytest.approx(sum(ACCURACIES[name] for name in ood) / 4)
    variance = sum(ACCURACIES[name] / 100 * (1 - ACCURACIES[name] / 100) / COUNTS[name] for name in ood) / 16
    assert found["high"] - found["ours"] == pytest.approx(196 * math.sqrt(variance))
    assert (found["paper"], found["verdict"], found["n"]) == (43.89, "within", 98_389)


def test_numbers_near_the_papers_are_within_and_others_outside():
    found = reproduction(**{"imagenet-a": 24.0})
    assert [found[name]["verdict"] for name in ACCURACIES] == ["within", "outside", "within", "within", "within"]
    assert found["average: ood"]["verdict"] == "outside"


def test_several_seeds_have_a_deviation_and_their_own_table():
    found = reproduction("table5", seeds=3)["imagenet-a"]
    assert (found["ours"], found["std"], found["seeds"]) == (pytest.approx(27.7), pytest.approx(1.0), 3)
    assert (found["paper"], found["paper_std"]) == (26.6, 0.13)


def test_the_published_deviation_widens_the_interval():
    assert verdict(60.0, 59.5, 60.5, 61.0, None) == "outside"
    assert verdict(60.0, 59.5, 60.5, 61.0, 0.5) == "within"
    assert verdict(60.0, 59.5, 60.5, 60.504, None) == "within"  # published numbers are rounded


def test_parts_errors_and_missing_datasets_are_never_within():
    part = reproduction(part="9 of 30000 images")
    assert part["imagenet-r"]["verdict"] == "not compared: 9 of 30000 images"
    assert part["average: ood"]["verdict"] == "not compared: imagenet-r: 9 of 30000 images"
    assert part["imagenet-a"]["verdict"] == "within"
    assert reproduction(errors=2)["imagenet"]["verdict"] == "not compared: 2 images could not be used"
    assert "average: ood" not in reproduction(**{"imagenet-r": None})
    assert "imagenet-r" not in reproduction(**{"imagenet-r": None})


def test_another_reward_is_not_compared():
    from tpt_lib.paper.reproduction.followers import follower_experiments

    experiment = follower_experiments("ViT-B/16")["rlcf"]
    (row,) = experiment.rows
    job = SimpleNamespace(row=row, source=Source("imagenet", None))
    plan = SimpleNamespace(experiment=experiment, skipped={}, model_name="ViT-B-16/openai", reward_name="RN50/openai")
    (found,) = Reproduction(plan, (Result(job, 73.0, 50_000, 0),)).rows()
    assert found["verdict"] == "not compared: the reward is RN50/openai, not ViT-L/14"
    plan.reward_name = "ViT-L-14/openai"
    (found,) = Reproduction(plan, (Result(job, 73.0, 50_000, 0),)).rows()
    assert (found["verdict"], found["source"][:6]) == ("within", "tables")


def test_the_page_has_every_cell_and_needs_no_other_file():
    rows = [*reproduction("table5", seeds=3).values()]
    text = page("a <title>", rows, ["a note & more"], ["line 1", "<line 2>"])
    assert text.count("<td") == len(rows) == 7
    assert "27.70 ± 1.00" in text
    assert "published 26.60 ± 0.13" in text
    assert "<b>outside</b>" in text
    assert "&lt;title&gt;" in text
    assert "&lt;line 2&gt;" in text
    assert "http" not in text
    assert "src=" not in text
    hostile = [dataclasses.asdict(Hostile())]
    assert "<script>" not in page("x", hostile, ["<script>"], ["<script>"])


@dataclasses.dataclass
class Hostile:
    method: str = "<script>"
    dataset: str = "<script>"
    ours: float = 1.0
    std: None = None
    low: float = 0.0
    high: float = 2.0
    paper: None = None
    paper_std: None = None
    verdict: str = "not compared: <script>"
