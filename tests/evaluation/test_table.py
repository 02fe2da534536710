"""A table prints itself."""

import json

import tpt_lib

TABLE = tpt_lib.evaluation.Table(
    ({"method": "zero-shot", "steps": None, "accuracy": 0.5, "ok": True},
     {"method": "TPT", "steps": 12, "accuracy": 0.66666, "ok": False}),
    note="A note.",
    shared={"views": 0.5},
    swept="steps",
)  # fmt: skip


def test_as_text():
    assert repr(TABLE) == (
        "method     steps  accuracy   ok\n"
        "-------------------------------\n"
        "zero-shot      -       0.5  yes\n"
        "TPT           12     0.667   no\n"
        "A note."
    )


def test_as_markdown():
    expected = (
        "| method | steps | accuracy | ok |\n"
        "| --- | ---: | ---: | ---: |\n"
        "| zero-shot | - | 0.5 | yes |\n"
        "| TPT | 12 | 0.667 | no |\n"
        "\nA note."
    )
    assert TABLE.to_markdown() == TABLE._repr_markdown_() == expected
    assert tpt_lib.evaluation.Table(TABLE.rows).to_markdown() == expected.removesuffix("\n\nA note.")


def test_text_is_aligned_left_and_numbers_right():
    rows = ({"name": "tpt", "title": "TPT", "n": 64}, {"name": "view_vote", "title": "majority vote", "n": 8})
    table = tpt_lib.evaluation.Table(rows)
    assert repr(table) == (
        "name       title           n\n"
        "----------------------------\n"
        "tpt        TPT            64\n"
        "view_vote  majority vote   8"
    )
    assert table.to_markdown().splitlines()[1] == "| --- | --- | ---: |"


def test_a_column_of_sentences_does_not_stretch_the_rule():
    text = repr(tpt_lib.evaluation.Table(({"name": "a", "found": "no " * 100}, {"name": "b", "found": "yes"})))
    head, rule, _, last = text.splitlines()
    assert (head, rule, last) == ("name  found", "-" * 120, "b     yes")


def test_as_data():
    assert TABLE.columns == ["method", "steps", "accuracy", "ok"]
    assert TABLE.column("steps") == [None, 12]
    assert json.loads(json.dumps(TABLE.to_dict())) == {
        "rows": list(TABLE.rows),
        "note": "A note.",
        "shared": {"views": 0.5},
        "swept": "steps",
    }
    assert tpt_lib.evaluation.Table(()).columns == []


def test_as_html():
    shown = tpt_lib.evaluation.Table(({"method": "<TPT>", "accuracy": 0.66666},), note="1 < 2")._repr_html_()
    assert '<td>&lt;TPT&gt;</td><td style="text-align:right">0.667</td>' in shown
    assert shown.endswith(">1 &lt; 2</p>")
    assert TABLE._repr_html_().count("<tr>") == 3
    assert "<p" not in tpt_lib.evaluation.Table(TABLE.rows)._repr_html_()
