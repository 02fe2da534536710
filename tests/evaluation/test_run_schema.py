"""The header and the rows of run files, and that they have not changed since the first version."""

import json

import pytest
import torch
from support.runs import FOUR

import tpt_lib
from tpt_lib.evaluation.run_file import error_row, method_result, read_run, result_row, run_header, truth_index

# as version 0.1.0 wrote them
HEADER = """{"kind": "run", "dataset": "mine", "split": "test", "classes": ["positive", "negative"], "methods": ["TPT", \
"prototype"], "seeds": [0], "n": 4, "settings": {"model": "tiny", "weights": "afe12ac1b9c701c8", "methods": {"TPT": \
"tpt_lib.methods.bongard.bongard_tpt(steps=2) on ", "prototype": "tpt_lib.methods.bongard.bongard_prototype() on "}}, \
"versions": {"tpt_lib": "0.1.0"}, "hash": "8f4276cc2f317e56"}"""
ROWS = [
    """{"kind": "row", "seed": 0, "sample": 0, "truth": "positive", "methods": {"TPT": {"index": 0, "confidence": 0.75, \
"entropy": 0.5, "top5": []}, "prototype": {"index": 1, "confidence": 1.0, "entropy": 0.0, "top5": []}}, "seconds": \
{"features": 0.25, "TPT": 0.125, "prototype": 0.0}}""",
    """{"kind": "row", "seed": 0, "sample": 2, "truth": "positive", "error": "MissingImageError: there is no file"}""",
]


def test_the_header_is_that_of_the_first_version():
    old = json.loads(HEADER)
    new = run_header("mine", "test", ("positive", "negative"), ["TPT", "prototype"], (0,), 4, old["settings"])
    assert list(new) == list(old)
    assert {**new, "versions": old["versions"]} == old
    assert new["versions"]["torch"] == torch.__version__.split("+")[0]


def test_rows_are_those_of_the_first_version():
    said = {
        "TPT": {"index": 0, "confidence": 0.75, "entropy": 0.5, "top5": []},
        "prototype": {"index": 1, "confidence": 1.0, "entropy": 0.0, "top5": []},
    }
    seconds = {"features": 0.25, "TPT": 0.1250000001, "prototype": 0.0}
    assert json.dumps(result_row(0, 0, "positive", said, seconds)) == ROWS[0]
    assert json.dumps(error_row(0, 2, "positive", "MissingImageError: there is no file")) == ROWS[1]


def test_files_of_the_first_version_are_read(tmp_path):
    (tmp_path / "run.jsonl").write_text("\n".join([HEADER, *ROWS]) + "\n")
    found = tpt_lib.Report.read(tmp_path / "run.jsonl")
    assert [(row["method"], row["n"], row["errors"], row["top1"]) for row in found.rows()] == [
        ("TPT", 1, 1, 100.0),
        ("prototype", 1, 1, 0.0),
    ]


@pytest.mark.parametrize("change", ["dataset", "split", "classes", "methods", "seeds", "n", "settings"])
def test_the_hash_covers_every_setting(change):
    given = {"dataset": "a", "split": "test", "classes": ["x"], "methods": ["m"], "seeds": [0], "n": 3, "settings": {}}
    others = {"dataset": "b", "split": "val", "classes": ["y"], "methods": ["n"], "seeds": [1], "n": 4}
    other = run_header(**{**given, change: others.get(change, {"model": "RN50"})})
    assert run_header(**given)["hash"] != other["hash"]


def test_a_result_is_what_the_logits_say():
    logits = torch.tensor([0.0, 3.0, 1.0, -1.0, 2.0, -2.0])
    found, probs = method_result(logits), logits.double().softmax(-1)
    assert (found["index"], found["top5"]) == (1, [1, 4, 2, 0, 3])
    assert found["confidence"] == pytest.approx(probs[1].item())
    assert found["entropy"] == pytest.approx(-(probs * probs.log()).sum().item())
    assert json.loads(json.dumps(found)) == found
    assert method_result(logits[:3])["top5"] == [1, 2, 0]
    assert method_result(logits[:2], top=0)["top5"] == []


def test_truths_by_index():
    assert [truth_index(truth) for truth in (3, "positive", "negative")] == [3, 0, 1]


def test_a_row_that_was_made_here_is_read(tmp_path):
    lines = [run_header("pets", "test", ["a", "b"], ["zero-shot", "TPT"], [0], 4, {}), *FOUR]
    (tmp_path / "run.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert read_run(tmp_path / "run.jsonl").rows == FOUR
