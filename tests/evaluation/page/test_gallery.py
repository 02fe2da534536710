"""What the gallery of a page is made of."""

import base64
import gzip
import json

from support.runs import FOUR, header, report, row, said

from tpt_lib.evaluation.page.gallery import changes_of, fixed_and_broken, packed


def unpacked(changes):
    return json.loads(gzip.decompress(base64.b64decode(packed(changes, [{} for _ in changes]))))


def test_only_images_that_methods_disagree_on():
    bad = {"seed": 0, "sample": 4, "truth": 0, "error": "x"}
    found = report((header(n=5, not_probabilities=["TPT"]), [*FOUR, bad]))
    (group,) = unpacked(changes_of(found.runs))
    assert (group["name"], group["samples"], group["seeds"]) == ("pets", [1, 2, 3], [0, 0, 0])
    assert (group["truths"], group["paths"], group["votes"]) == ([1, 1, 0], [None] * 3, [False, True])
    (counts,) = fixed_and_broken(changes_of(found.runs)[0])
    assert (counts["method"], counts["relative to"]) == ("TPT", "zero-shot")
    assert (counts["fixed"], counts["broken"], counts["images"], counts["p"]) == (2, 1, 4, 1.0)


def test_methods_of_several_files_are_taken_together():
    a, b = (header(methods=[name], n=2, seeds=(0, 1)) for name in "ab")
    rows = {name: [row(i, 0, seed=1, **{name: said(int(name == "b"))}) for i in range(2)] for name in "ab"}
    other = header(methods=["a", "b"], n=1, model="other")
    found = report((a, rows["a"]), (b, rows["b"][:1]), (other, [row(0, 0, a=said(0), b=said(0))]))
    first, second = unpacked(changes_of(found.runs))
    assert (first["name"], second["name"]) == ("pets, RN50", "pets, other")
    assert (first["methods"], first["samples"], second["samples"]) == (["a", "b"], [0], [])


def test_answers_are_nine_numbers():
    top = {"top5": [3, 2, 1, 0, 4], "top5_probs": [0.4, 0.4, 0.1, 0.06, 0.04]}
    before = {"index": 0, "top5": [0, 1, 2, 3, 4], "top5_probs": [0.2] * 5, "probs": [0.5, 0.25, 0.1, 0.1, 0.05]}
    full = {"index": 2, "confidence": 0.4, "entropy": 1.0, **top, "zero_shot": before}
    found = report((header(classes=5, n=1), [row(0, 2, zero_shot=said(0, 0.1234, classes=5), TPT=full)]))
    (group,) = unpacked(changes_of(found.runs))
    old, new = group["answers"]
    assert new == [2, 3, 1, 400, 400, 100, 250, 500, 100], "of equals, the answer comes first"
    assert old == [0, -1, -1, 123, -1, -1, -1, -1, -1]
