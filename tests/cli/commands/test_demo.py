"""The command demo, without running it."""

import json
import sys

from support.command_line import ran


def test_demo_is_called(capsys, monkeypatch):
    called = []

    def told(**options):
        called.append(options)
        sys.stdout.write("told\n")
        return {"n": options["n"]}

    monkeypatch.setattr("tpt_lib.tiny.demo.demo", told)
    line = "demo --style emojione-monotone --n 3 --seed 5 --out there.png"
    assert ran(capsys, line) == (0, "told\n", [])
    assert called == [{"style": "emojione-monotone", "n": 3, "seed": 5, "out": "there.png"}]
    code, out, errors = ran(capsys, f"{line} --json")
    assert (code, json.loads(out), errors) == (0, {"n": 3}, ["told"])
