"""The paper's tables as data, and lookup in them."""

import pytest

import tpt_lib
from tpt_lib import get_method, list_methods
from tpt_lib.evaluation.published import find_number, follower_numbers


@pytest.mark.parametrize(
    ("dataset", "method", "model", "value"),
    [
        ("imagenet", "zero-shot", "RN50", 58.16),
        ("imagenet-a", "TPT", "ViT-B/16", 54.77),
        ("ImageNet-V2", "TPT + CoCoOp", "ViT-B/16", 64.85),
        ("imagenet-v2", "CoOp + TPT", "RN50", 57.83),
        ("imagenet-sketch", "Ensemble", "ViT-B-16/openai", 48.24),
        ("imagenet-r", "majority vote", "RN50", 54.77),
        ("imagenet-r", "average_predict", "RN50", 51.25),
        ("imagenet-a", "baseline TPT", "RN50", 23.65),
        ("imagenet-v2", "CoCoOp + CoOp", "RN50", 56.45),
        ("imagenet-a", "MEMO (rho=0.1)", "ResNet-50", 2.59),
        ("average: imagenet", "TPT", "ViT-B/16", 62.44),
        ("average: ood", "TPT", "ViT-B/16", 60.81),
        ("Flower102", "TPT", "RN50", 62.69),
        ("eurosat", "ensemble", "openai/clip-vit-base-patch16", 50.42),
        ("aircraft", "CoOp", "ViT-B/16", 18.47),
        ("average: fine-grained", "CoCoOp", "ViT-B/16", 64.63),
        ("bongard-hoi/unseen_act_seen_obj", "bongard_tpt", "RN50", 68.50),
        ("bongard-hoi/seen_act_unseen_obj", "HOITrans", "RN50", 63.10),
        ("average: bongard-hoi", "TPT", "RN50", 66.59),
    ],
)
def test_published_numbers(dataset, method, model, value):
    assert tpt_lib.paper.paper_accuracy(dataset, method, model=model) == value


def test_what_the_paper_does_not_have_is_none():
    assert tpt_lib.paper.paper_accuracy("mnist", "TPT") is None
    assert tpt_lib.paper.paper_accuracy("pets", "my method") is None
    assert tpt_lib.paper.paper_accuracy("pets", "TPT", model="ViT-L-14") is None
    assert tpt_lib.paper.paper_accuracy("pets/val", "TPT") is None, "the paper's numbers are of test splits"
    assert tpt_lib.paper.paper_accuracy("imagenet", "TPT", table=2) is None
    assert tpt_lib.paper.paper_accuracy("learnable", "TPT") is None


def test_tables_5_and_6_have_deviations_and_are_for_several_seeds():
    one, three = (find_number("imagenet-a", "TPT", "ViT-B/16", seeds=seeds) for seeds in (1, 3))
    assert (one.value, one.std, one.table) == (54.77, None, 1)
    assert (three.value, three.std, three.table) == (54.47, 0.26, 5)
    clip = find_number("eurosat", "zero-shot", "RN50", seeds=3)
    assert (clip.value, clip.std, clip.table) == (23.69, None, 2)
    assert find_number("eurosat", "CoOp", "RN50", seeds=3).std == 4.0


def test_all_of_the_paper_is_there():
    tables = tpt_lib.paper.paper_tables()
    assert [len(table.rows) for table in tables] == [14, 10, 4, 3, 8, 8, 12, 4, 6, 4, 4]
    for table in tables:
        for line in table.rows:
            assert len(line["values"]) == len(table.columns) == len(line.get("std", table.columns))
    assert tables[10].rows[2]["values"] == [0.11, 16000, 800000, 65800]
    assert [line["values"] for line in tables[9].rows][1] == [True, False, False]


@pytest.mark.parametrize(
    ("dataset", "method", "model", "value"),
    [
        ("imagenet", "ZERO", "ViT-B-16/openai", 69.31),
        ("average: ood", "zero_predict", "ViT-B/16", 62.35),
        ("average: fine-grained", "ZERO", "ViT-B/16", 64.21),
        ("imagenet", "C-TPT", "ViT-B/16", 68.5),
        ("average: ood", "O-TPT", "ViT-B/16", 57.8),
        ("imagenet", "TPS", "ViT-B/16", 70.19),
        ("imagenet", "RLCF", "ViT-B/16", 73.23),
        ("imagenet-c", "VTE", "ViT-B/16", 25.61),
        ("imagenet", "MTA", "ViT-B/16", None),
        ("imagenet", "TDA", "ViT-B/16", 69.51),
        ("average: fine-grained", "dmn", "ViT-B/16", 70.3),
        ("average: ood", "dynaprompt", "ViT-B/16", 61.81),
        ("average: fine-grained", "ECALP", "RN50", 59.38),
        ("imagenet", "BoostAdapter", "ViT-B/16", None),
        ("imagenet", "ZERO", "RN50", None),
        ("imagenet", "TPT", "ViT-B/16", 68.98),
    ],
)
def test_numbers_of_later_methods(dataset, method, model, value):
    assert tpt_lib.paper.paper_accuracy(dataset, method, model=model) == value
    found = find_number(dataset, method, model)
    assert value is None or (found.table is None) == (method != "TPT") == (found.source is not None)
    assert find_number(dataset, method, model, table=2) is None


def test_every_later_number_has_a_source():
    rows = follower_numbers()
    known = {get_method(name).published for name in (*list_methods(), *list_methods(online=True))}
    for line in rows:
        assert line.source
        assert line.top1 or line.ece
        assert line.method in known
    assert {line.method for line in rows} >= {"ZERO", "MTA", "VTE", "TPS", "C-TPT", "O-TPT", "R-TPT", "RLCF"}
    assert not {69.29, 61.6} & {value for line in rows for value in line.top1.values()}, "these could not be verified"
