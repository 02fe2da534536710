"""Budgets and strategies: counted, and read off the prompts."""

import functools

import pytest
from support.comparisons import NAMES, cocoop, coop, images_of, setting

import tpt_lib
from tpt_lib import memo_clip_predict
from tpt_lib.methods import prompt_ensemble_predict
from tpt_lib.paper import budget_table, strategy_table


def test_budgets_are_counted():
    model, prompts = setting()
    methods = {
        "hand-crafted": "zero_shot", "averaged": "view_average", "CoOp": ("zero_shot", coop()),
        "CoCoOp": ("zero_shot", cocoop()), "TPT": "tpt", "TPT + CoOp": ("tpt", coop()),
        "image tower": functools.partial(memo_clip_predict, group="image"),
        "both": (prompt_ensemble_predict, [coop(), cocoop()]),
    }  # fmt: skip
    training = {"CoOp": (16_000, 12_500), "CoCoOp": (16_000, 800_000)}
    table = budget_table(model, images_of()[0], prompts, methods=methods, training=training, n_views=6)
    network = 2 * 16 + 2 + 32 * 2 + 32
    want = {  # views, samples, iterations, added, tuned
        "hand-crafted": (1, 0, 0, 0, 0), "averaged": (6, 0, 0, 0, 0), "CoOp": (1, 16_000, 12_500, 4 * 32, 0),
        "CoCoOp": (1, 16_000, 800_000, 4 * 32 + network, 0), "TPT": (6, 0, 0, 0, 4 * 32),
        "TPT + CoOp": (6, None, None, 4 * 32, 4 * 32), "image tower": (6, 0, 0, 0, None),
        "both": (1, None, None, 2 * 4 * 32 + network, 0),
    }  # fmt: skip
    assert {row["method"]: tuple(list(row.values())[2:]) for row in table.rows} == want
    assert min(table.column("seconds")) > 0
    assert budget_table(model, images_of()[0], prompts, n_views=2).column("method") == ["hand-crafted", "TPT"]


def test_the_papers_table_of_strategies():
    model, prompts = setting()
    methods = {
        "hand-crafted": "zero_shot", "CoOp": ("zero_shot", coop()), "CoCoOp": ("zero_shot", cocoop()),
        "TPT": "tpt", "TPT + CoOp": ("tpt", coop()),
    }  # fmt: skip
    table = strategy_table(model, images_of()[0], prompts, methods=methods, n_views=4)
    assert table.columns == ["method", "learnable", "no training data", "input-dependent"]
    assert [tuple(row.values()) for row in table.rows] == [
        ("hand-crafted", False, True, False),
        ("CoOp", True, False, False),
        ("CoCoOp", True, False, True),
        ("TPT", True, True, True),
        ("TPT + CoOp", True, False, True),
    ]
    published = {row["method"]: row["values"] for row in tpt_lib.paper.paper_tables()[9].rows}
    assert [published[name] for name in ("CoOp", "CoCoOp", "TPT")] == [
        list(row.values())[1:] for row in table.rows[1:4]
    ]


def test_other_words_are_no_learned_prompt():
    model, _ = setting()
    prompts = tpt_lib.class_prompts(model, NAMES, context="a drawing of the")
    table = budget_table(model, images_of()[0], prompts, methods={"words": "zero_shot"}, n_views=2)
    assert (table.rows[0]["added"], table.rows[0]["samples"]) == (0, 0)


@pytest.mark.parametrize("table", [budget_table, strategy_table])
def test_unknown_keywords_are_refused(table):
    model, prompts = setting()
    with pytest.raises(TypeError, match=f"{table.__name__}: unknown keyword 'n_view'; did you mean 'n_views'?"):
        table(model, images_of()[0], prompts, n_view=2)
