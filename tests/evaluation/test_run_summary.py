"""One run's answers and scores."""

import pytest
from support.runs import FOUR, header, report

from tpt_lib.evaluation.metrics import scores
from tpt_lib.evaluation.run_summary import outcomes


def test_scores_by_hand():
    found = scores(outcomes(FOUR, "zero-shot", 2))
    assert found["top1"] == 50
    assert found["top5"] is None
    assert found["entropy"] == pytest.approx(0.7)
    by_hand = (abs(1 - 0.9) + 0.6 + 0.8 + abs(1 - 0.55)) / 4  # a bin each
    assert found["ece20"] == pytest.approx(100 * by_hand, abs=1e-4)


def test_errors_are_left_out_and_nothing_but_errors_has_no_scores():
    bad = {"kind": "row", "seed": 0, "sample": 4, "truth": 0, "error": "ImageError: cut off"}
    assert scores(outcomes([*FOUR, bad], "TPT", 2))["top1"] == 75
    assert set(scores(outcomes([bad], "TPT", 2)).values()) == {None}
    assert set(scores(outcomes([bad], "TPT", 9)).values()) == {None}


def test_the_order_of_a_stream_is_noted():
    for stream, said in [
        ({"order": "by-class", "digest": "1"}, "order 'by-class'"),
        ({"order": "shuffle", "ranks": 4}, "order 'shuffle', with a stream of its own on each of 4 ranks"),
        ({"order": "dataset", "batch_size": 16}, "order 'dataset'; those that learn from batches got 16 at a time"),
    ]:
        (note,) = [note for note in report((header(stream=stream), FOUR)).notes() if "online" in note]
        assert note == f"pets: online methods saw the images in the {said}"
