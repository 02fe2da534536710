"""What is wrong with a line of a run file, and in what two runs differ."""

import json
import math

import pytest
from support.runs import FOUR, header, said

import tpt_lib
from tpt_lib.evaluation.run_checks import differing_settings


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
    ],
)
def test_malformed_files_say_what_is_wrong_and_where(tmp_path, lines, message):
    path = tmp_path / "run.jsonl"
    path.write_text("".join((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in lines))
    with pytest.raises(ValueError, match=message):
        tpt_lib.Report.read(path)


def test_differing_settings_have_full_names_and_both_values():
    ours, theirs = header(views={"n_views": 64, "recipe": "crop"}), header(views={"n_views": 8, "recipe": "crop"}, n=5)
    assert differing_settings(ours, theirs) == {"n": (4, 5), "settings.views.n_views": (64, 8)}
    assert differing_settings(ours, {**ours, "hash": "x", "versions": {"torch": "0"}}) == {}
