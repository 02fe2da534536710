"""The command report: what it prints is what the library returns."""

import json

import pytest
from support.command_line import STYLE, ran

import tpt_lib


@pytest.mark.slow
def test_report(capsys, tmp_path):
    ran(capsys, f"evaluate --dataset {STYLE} --limit 3 --n-views 2 --num-workers 0 --out run.jsonl")
    read = tpt_lib.Report.read("run.jsonl")
    tested = read.compare("zero-shot", "TPT")
    assert ran(capsys, "report run.jsonl")[:2] == (0, f"{read}\n")
    assert ran(capsys, "report run.jsonl --format csv")[1] == read.to_csv()
    out = ran(capsys, "report run.jsonl --format markdown --compare zero-shot TPT --plots figures")[1]
    assert out == f"{read.to_markdown()}\n\n{tested.to_markdown()}\n"
    assert {file.name for file in (tmp_path / "figures").iterdir()} == {"accuracies.png", "reliability.png"}
    out = json.loads(ran(capsys, "report run.jsonl --compare zero-shot TPT --json")[1])
    assert out["rows"] == read.rows()
    assert out["compare"] == tested.to_dict()
    code, out, (note,) = ran(capsys, "report run.jsonl --html report.html")
    assert (code, out, note) == (0, f"{read}\n", "tpt-lib: The page is in report.html")
    assert (tmp_path / "report.html").read_text().startswith("<!doctype html>")
    code, _, (error,) = ran(capsys, "report run.jsonl --html report.html --root none")
    assert (code, "'none' is not a folder" in error) == (2, True)
    code, _, (error,) = ran(capsys, "report run.jsonl --compare zero-shot CoOp")
    assert (code, "there is no method 'CoOp'" in error) == (2, True)
