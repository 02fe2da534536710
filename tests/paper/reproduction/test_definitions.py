"""What can be reproduced, as data: complete, and with the published numbers."""

import inspect

import pytest
from support.reproductions import model

from tpt_lib import paper
from tpt_lib.methods.base import get_method
from tpt_lib.paper.reproduction.definitions import find_experiment, paper_experiments
from tpt_lib.paper.reproduction.followers import follower_experiments

pytestmark = pytest.mark.usefixtures("no_shape_checks")  # lookups of published numbers are slow with them

RUN = [one for one in paper_experiments().values() if not one.why]
OF_FOLLOWERS = [*follower_experiments("RN50").values(), *follower_experiments("ViT-B/16").values()]


def test_every_table_and_figure_is_listed_and_says_why_it_is_not_run():
    listed = {row["name"]: row["what is run"] for row in paper.list_experiments().rows}
    assert [name for name in listed if name.startswith("table")] == [f"table{i}" for i in range(1, 12)]
    assert {"figure1", "figure2", "figure3", "figure4a", "figure4b", "figure5a", "figure5b"} < set(listed)
    assert listed["table9"].startswith("not run: it adapts a classifier of torchvision")
    assert listed["table4"] == "CLIP; TPT without confidence selection; TPT. 5 datasets"


@pytest.mark.parametrize("experiment", RUN, ids=lambda one: one.name)
def test_rows_and_columns_are_those_of_the_paper(experiment):
    table = paper.paper_tables()[experiment.table - 1]
    assert tuple(experiment.columns) == table.columns
    if experiment.name.startswith("table"):
        assert [row.name for row in experiment.rows] == list(dict.fromkeys(row["method"] for row in table.rows))
        assert experiment.seeds == ((0, 1, 2) if any("std" in row for row in table.rows) else (0,))
        for published in table.rows:
            row = next(row for row in experiment.rows if row.name == published["method"])
            numbers = [experiment.number(row, column, published["model"] or "RN50") for column in table.columns]
            assert [number.value for number in numbers] == published["values"]


@pytest.mark.parametrize("experiment", [*RUN, *OF_FOLLOWERS], ids=lambda one: one.name)
def test_methods_and_settings_exist(experiment):
    for row in experiment.rows:
        if row.why and not row.method:
            continue
        predict = get_method(row.method).predict
        taken = inspect.signature(predict).parameters
        assert all(name in taken or "tuning" in taken for name in {*row.settings} - {"fraction"}), row
        assert row.recipe in ("", "crop", "augmix")


def test_averages_have_the_datasets_that_they_average():
    columns = paper_experiments()["table1"].columns
    assert columns["average: ood"] == ("imagenet-a", "imagenet-v2", "imagenet-r", "imagenet-sketch")
    assert columns["average: imagenet"][0] == "imagenet"
    assert len(paper_experiments()["table3"].columns["average: bongard-hoi"]) == 4


def test_followers_have_their_settings_and_their_reasons():
    known = follower_experiments("ViT-B/16")
    plain, templates = known["zero"].rows
    assert (plain.recipe, plain.numbers["average: ood"].value, templates.contexts) == ("crop", 62.35, ("templates",))
    assert len(known["zero"].columns["imagenet-c"]) == 15
    assert known["c-tpt"].rows[0].variants == "augmix"
    assert "not known" in known["r-tpt"].why
    assert "GPT-4" in known["tps"].why
    assert [row.name for row in follower_experiments("RN50")["followers"].rows] == ["ECALP"]
    listed = paper.list_experiments(followers="ViT-B-16").column("name")
    assert (listed[0], "tda" in listed) == ("followers", True)


def test_no_number_for_another_model():
    experiment = paper_experiments()["table1"]
    assert experiment.number(experiment.rows[0], "imagenet", "ViT-B-16/laion2b") is None
    zero = follower_experiments("ViT-B-16/laion2b")["zero"]
    assert zero.number(zero.rows[0], "imagenet", "ViT-B-16/laion2b") is None


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("table12", "there is no experiment 'table12'; did you mean 'table"),
        ("<script>", "there is no experiment '<script>'; there are table1, table2"),
        ("table9", r"table9 \(Confidence selection in MEMO \(appendix\)\) is not run: it adapts a classifier"),
    ],
)
def test_unknown_and_impossible_experiments(name, says, tmp_path):
    with pytest.raises(ValueError, match=says):
        paper.plan_experiment(model(), name, tmp_path, out=tmp_path)


def test_names_may_be_spelled_loosely():
    assert find_experiment("Table 1", paper_experiments()).name == "table1"
