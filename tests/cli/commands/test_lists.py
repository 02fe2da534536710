"""The commands that list datasets, methods and models."""

import json
import re

from support.command_line import STYLE, ran

import tpt_lib


def test_datasets(capsys, tmp_path):
    rows = {row["name"]: row for row in json.loads(ran(capsys, "datasets --json")[1])}
    assert rows["dtd"] == {"name": "dtd", "classes": 47, "train": 2820, "val": 1128, "test": 1692, "views": "augmix"}
    assert (rows[STYLE]["test"], rows["tiny-bongard"]["test"]) == (430, 60)
    assert set(tpt_lib.list_datasets()) <= set(rows)
    (tmp_path / "imagenet-r/n01443537").mkdir(parents=True)
    out = ran(capsys, "datasets --root .")[1]
    assert re.search(
        r"^imagenet-r .*no: imagenet-r: 200 of 200 classes have no images: 'goldfish'", out, flags=re.MULTILINE
    )
    assert re.search(r"^dtd .*no: dtd: no split_zhou", out, flags=re.MULTILINE)
    assert re.search(r"^pacs .*no: pacs: no folder 'art_painting' in", out, flags=re.MULTILINE)


def test_methods(capsys):
    code, out, _ = ran(capsys, "methods --json")
    rows = json.loads(out)
    assert (code, [row["name"] for row in rows]) == (0, [*tpt_lib.list_methods(), *tpt_lib.list_methods(online=True)])
    for row in rows:
        entry = tpt_lib.get_method(row["name"])
        assert (row["title"], row["needs"], row["paper"]) == (entry.title, ", ".join(entry.needs), entry.paper)
        assert row["kind"] == ("online" if entry.online else "episodic")
    assert re.search(r"^tpt +TPT +episodic +features +Shu et al.", ran(capsys, "methods")[1], flags=re.MULTILINE)


def test_models(capsys):
    code, out, _ = ran(capsys, "models rn50 --json")
    rows = json.loads(out)
    assert code == 0
    assert {"model": "RN50", "pretrained": "openai"} in rows
    assert all("rn50" in row["model"].lower() for row in rows)
    assert "tiny" in ran(capsys, "models")[1]
    assert ran(capsys, "models zzz") == (0, "", ["tpt-lib: no model has 'zzz' in its name"])
