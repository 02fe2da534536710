"""The header and the rows of run files, what the first version wrote, and what has been added since."""

import json

import pytest
import torch
from support.runs import FOUR

import tpt_lib
from tpt_lib.evaluation.run_file import error_row, method_result, read_run, result_row, run_header, truth_index
from tpt_lib.evaluation.run_schema import is_final

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


def test_rows_have_what_those_of_the_first_version_have_and_a_path():
    said = {
        "TPT": {"index": 0, "confidence": 0.75, "entropy": 0.5, "top5": []},
        "prototype": {"index": 1, "confidence": 1.0, "entropy": 0.0, "top5": []},
    }
    seconds = {"features": 0.25, "TPT": 0.1250000001, "prototype": 0.0}
    error = "MissingImageError: there is no file"
    assert result_row(0, 0, "positive", said, seconds) == {**json.loads(ROWS[0]), "path": None}
    assert result_row(0, 0, "positive", said, seconds, "a.png") == {**json.loads(ROWS[0]), "path": "a.png"}
    assert error_row(0, 2, "positive", error) == {**json.loads(ROWS[1]), "path": None}
    assert error_row(0, 2, "positive", error, "a.png") == {**json.loads(ROWS[1]), "path": "a.png"}


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


@pytest.mark.parametrize(("setting", "counts"), [("stream", True), ("data", False)])
def test_the_hash_has_only_the_digest_of_the_data(setting, counts):
    """The rest of it may differ between parts of a run; two streams with the same order are two runs."""
    given = {"dataset": "a", "split": "test", "classes": ["x"], "methods": ["m"], "seeds": [0], "n": 3}
    one, other = (
        run_header(**given, settings={setting: {"digest": "abc", "batch_size": size}})["hash"] for size in (4, 5)
    )
    assert (one != other) == counts


def test_a_result_is_what_the_logits_say():
    logits = torch.tensor([0.0, 3.0, 1.0, -1.0, 2.0, -2.0])
    found, probs = method_result(logits), logits.double().softmax(-1)
    assert (found["index"], found["top5"]) == (1, [1, 4, 2, 0, 3])
    assert found["confidence"] == pytest.approx(probs[1].item())
    assert found["entropy"] == pytest.approx(-(probs * probs.log()).sum().item())
    assert json.loads(json.dumps(found)) == found
    assert method_result(logits[:3])["top5"] == [1, 2, 0]
    assert method_result(logits[:2], top=0)["top5"] == []


def test_a_result_has_the_probabilities_of_the_top_classes_next_to_zero_shot():
    logits = torch.tensor([0.0, 3.0, 1.0, -1.0, 2.0, -2.0, -9.0])
    before = torch.tensor([4.0, 1.0, -3.0, 0.0, 0.5, 2.0, -1.0])
    found = method_result(logits, before)
    probs, plain = (one.double().softmax(-1).tolist() for one in (logits, before))
    assert found["top5_probs"] == pytest.approx([probs[i] for i in (1, 4, 2, 0, 3)], abs=1e-6)
    assert found["zero_shot"] == {
        "index": 0,
        "top5": [0, 5, 1, 4, 3],
        "top5_probs": pytest.approx([plain[i] for i in (0, 5, 1, 4, 3)], abs=1e-6),
        "probs": pytest.approx([plain[i] for i in (1, 4, 2, 0, 3)], abs=1e-6),
    }
    assert len(json.dumps(found)) < 420
    assert "zero_shot" not in method_result(logits)
    assert method_result(logits[:2], before[:2])["zero_shot"]["top5"] == [0, 1]


@pytest.mark.parametrize(
    ("error", "final"),
    [
        ("ImageError: 'a.png' cannot be opened as an image", True),
        ("MissingImageError: there is no file 'a.png'", False),
        ("UnreadableImageError: 'a.png' cannot be read: [Errno 116] Stale file handle", False),
        ("MemoryError: ", False),
        ("ActorDied: ImageError:", False),
    ],
)
def test_only_a_refused_image_is_a_final_error(error, final):
    assert is_final(error_row(0, 2, 1, error)) == final
    assert is_final(result_row(0, 0, 1, {}, {}))


def test_truths_by_index():
    assert [truth_index(truth) for truth in (3, "positive", "negative")] == [3, 0, 1]


def test_a_row_that_was_made_here_is_read(tmp_path):
    lines = [run_header("pets", "test", ["a", "b"], ["zero-shot", "TPT"], [0], 4, {}), *FOUR]
    (tmp_path / "run.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert read_run(tmp_path / "run.jsonl").rows == FOUR
