"""The command compare: what it prints is what the library returns."""

import json

import pytest
from support.command_line import STYLE, ran, save, tiny

import tpt_lib


def test_compare(capsys, tmp_path):
    code, out, _ = ran(
        capsys, f"compare --dataset {STYLE} --limit 2 --methods zero-shot tpt --n-views 4 --seed 2 --json"
    )
    rows = json.loads(out)["rows"]
    assert (code, [row["method"] for row in rows]) == (0, ["zero-shot", "TPT"])
    data = tpt_lib.load_tiny_drawings(STYLE)
    two = [data.samples[i] for i in (0, 215)]
    want = tpt_lib.compare(tiny(), two, data.classes, methods=["zero_shot", "tpt"], n_views=4, seed=2)
    assert [row["accuracy"] for row in rows] == want.column("accuracy")
    assert [row["entropy"] for row in rows] == pytest.approx(want.column("entropy"), rel=1e-4)


@pytest.mark.slow
def test_compare_images_without_labels(capsys, tmp_path):
    path = save(tmp_path / "a.png")
    code, out, _ = ran(capsys, f"compare {path} --classes cat dog --n-views 4")
    assert code == 0
    head, rule, *rows, note = out.splitlines()
    assert head.split()[:3] == ["method", "label", "accuracy"]
    assert set(rule) == {"-"}
    want = tpt_lib.compare(tiny(), path, ["cat", "dog"], n_views=4)
    names = ["zero-shot", "template ensemble", "averaged prediction", "majority vote", "TPT"]
    assert [row[: row.index("  ")] for row in rows] == names
    assert [row.split("  ", 1)[1].split()[0] for row in rows] == want.column("label")
    assert note.startswith("Over 1 image(s). ")
