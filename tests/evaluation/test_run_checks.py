"""What is wrong with a line of a run file, and in what two runs differ."""

import json
import math

import pytest
from support.runs import FOUR, header, said

import tpt_lib
from tpt_lib.evaluation.run_checks import differing_settings
from tpt_lib.evaluation.run_summary import correct_answers, outcomes_by_seed, run_notes


def changed(**changes):
    return {**FOUR[0], **changes}


def answer(**changes):
    return {**FOUR[0], "methods": {**FOUR[0]["methods"], "TPT": {**said(0), **changes}}}


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ([], "run.jsonl: no header"),
        (["{"], "run.jsonl, line 1: expected the header of a run.*but got {"),
        ([[1, 2]], "line 1: expected the header of a run"),
        ([FOUR[0]], "line 1: expected the header of a run"),
        ([{**header(), "classes": None}], "line 1: 'classes' of the header must be a list, but is None"),
        ([{**header(), "hash": None}], "line 1: the header has no hash"),
        ([header(), '{"kind": "ro', FOUR[0]], 'line 2: expected a row.*but got {"kind": "ro'),
        ([header(), FOUR[0], "nonsense"], "line 3: expected a row.*but got nonsense"),
        ([header(), header()], "line 2: expected a row"),
        ([header(), changed(seed=7)], r"line 2: seed must be one of the header's \[0\], but is 7"),
        ([header(), changed(sample=4)], "line 2: sample must be from 0 to 3, but is 4"),
        ([header(), changed(truth=2)], "line 2: truth must be a class from 0 to 1, .*but is 2"),
        ([header(), changed(truth="yes")], "line 2: truth must be a class from 0 to 1, .*but is 'yes'"),
        ([header(), changed(methods={"TPT": said(0)})], "line 2: method 'zero-shot': no result"),
        ([header(), answer(index=5)], "line 2: method 'TPT': index must be a class from 0 to 1, but is 5"),
        ([header(), answer(confidence=1.5)], "line 2: method 'TPT': confidence must be from 0 to 1, but is 1.5"),
        ([header(), answer(confidence=math.nan)], "confidence must be from 0 to 1, but is nan"),
        ([header(), answer(entropy=None)], "line 2: method 'TPT': entropy is missing or has the wrong type: None"),
        ([header(classes=6), answer()], "line 2: method 'zero-shot': top5 must be 5 classes, but is"),
        ([header(), FOUR[0], answer(index=1)], "two rows of seed 0, sample 0 differ"),
        ([header(), changed(position=4)], "line 2: position must be from 0 to 3, but is 4"),
        ([header(), changed(path=3)], "line 2: path must be a string or null, but is 3"),
        ([header(), changed(error=3)], "line 2: error must be a string, but is 3"),
        ([header(), changed(seconds={"TPT": "a"})], "line 2: seconds of 'TPT' must be a number, but is a"),
        ([header(), answer(top5=[0, 2])], "line 2: method 'TPT': top5 must be classes from 0 to 1, but is .0, 2."),
        (
            [header(), answer(top5_probs=[0.5])],
            "top5_probs must be a number from 0 to 1 for each of top5, but is .0.5.",
        ),
        ([header(), answer(top5_probs=[0.5, 2])], "top5_probs must be a number from 0 to 1"),
        ([header(), answer(zero_shot=[])], "zero_shot must be an object with its top5, but is"),
        ([header(), answer(zero_shot={"top5": [9]})], r"zero_shot\.top5 must be classes from 0 to 1"),
        ([header(), answer(zero_shot={"top5": [0], "probs": [7]})], r"zero_shot\.probs must be a number from 0 to 1"),
    ],
)
def test_malformed_files_say_what_is_wrong_and_where(tmp_path, lines, message):
    path = tmp_path / "run.jsonl"
    path.write_text("".join((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in lines))
    with pytest.raises(ValueError, match=message):
        tpt_lib.Report.read(path)


def test_a_damaged_line_says_what_to_do(tmp_path):
    path = tmp_path / "run.jsonl"
    for lines, message in [
        (["nonsense"], r"run\.jsonl, line 1: .*\. Restore the file from a copy, or evaluate again with another `out`$"),
        ([json.dumps(header()), "{"], r"run\.jsonl, line 2: .*\. Delete this line, and evaluate with the same `out`"),
    ]:
        path.write_text("\n".join(lines) + "\n")
        with pytest.raises(ValueError, match=message):
            tpt_lib.Report.read(path)


ODD = [None, True, -1, 1.5, 10**30, "x", "", [], [[]], [None], {}, {"x": []}, math.nan]


def variants(value):
    """Every way to replace one part of a JSON value by something odd, or to leave it out."""
    yield from ODD
    for key in value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ():
        for odd in variants(value[key]):
            copy = value.copy()
            copy[key] = odd
            yield copy
        if isinstance(value, dict):
            yield {name: part for name, part in value.items() if name != key}


def test_whatever_is_wrong_in_a_line_is_said_with_the_file(tmp_path):
    shown = {
        "top5_probs": [0.6, 0.4],
        "zero_shot": {"index": 0, "top5": [0, 1], "top5_probs": [0.6, 0.4], "probs": [1, 0]},
    }
    good = [header(classes=2, n=2), {**answer(**shown), "path": "a.png", "seconds": {"TPT": 0.5}}]
    path, messages = tmp_path / "run.jsonl", []
    for number in (0, 1):
        for odd in variants(good[number]):
            path.write_text("".join(json.dumps(odd if i == number else line) + "\n" for i, line in enumerate(good)))
            try:
                found = tpt_lib.evaluation.read_run(path)
            except ValueError as error:
                messages.append(str(error))
                continue
            for method in found.header["methods"]:
                outcomes_by_seed(found, method)
                correct_answers(found, method)
            assert len([found.label, found.model, *run_notes(found)]) >= 2
    assert len(messages) > 300
    assert [message for message in messages if not message.startswith(f"{path}, line ")] == []


def test_differing_settings_have_full_names_and_both_values():
    ours, theirs = header(views={"n_views": 64, "recipe": "crop"}), header(views={"n_views": 8, "recipe": "crop"}, n=5)
    assert differing_settings(ours, theirs) == {"n": (4, 5), "settings.views.n_views": (64, 8)}
    assert differing_settings(ours, {**ours, "hash": "x", "versions": {"torch": "0"}}) == {}
