"""Errors, warnings and exit codes; once as a program."""

import io
import os
import subprocess
import sys
import warnings

import pytest
from support.command_line import STYLE, ran

from tpt_lib.cli import main
from tpt_lib.cli.commands import models


def failing(error):
    def command(args):
        raise error

    return command


@pytest.mark.parametrize(
    ("error", "code", "line"),
    [
        (ValueError("two\nlines"), 2, "tpt-lib: error: two lines"),
        (ImportError("needs torchmetrics"), 2, "tpt-lib: error: needs torchmetrics"),
        (KeyError("x"), 1, "tpt-lib: error: unexpected KeyError (--debug shows the traceback): 'x'"),
        (KeyboardInterrupt(), 130, "tpt-lib: stopped; the same command resumes evaluate, encode and reproduce"),
    ],
)
def test_errors_are_one_line_with_a_code(capsys, monkeypatch, error, code, line):
    monkeypatch.setattr(models, "run", failing(error))
    assert ran(capsys, "models") == (code, "", [line])
    if isinstance(error, Exception):
        assert ran(capsys, "models --debug")[2][0] == "Traceback (most recent call last):"


def test_what_is_wrong_is_one_line_and_touches_nothing(capsys, tmp_path):
    for line, says in {
        "evaluate": "--dataset is missing",
        "evaluate --dataset pets": "'pets' needs a root",
        "evaluate --dataset petz": "did you mean 'pets'?",
        f"evaluate --dataset {STYLE} --methods tpt coop": "there is no method 'coop'; there are boostadapter",
        f"evaluate --dataset {STYLE} --limit 0": "--limit must be at least 1, but is 0",
        f"compare a.png --dataset {STYLE}": "images or --dataset, not both",
        "compare a.png": "pass --classes or --classes-file",
        "datasets --root none": "--root: 'none' is not a folder",
        f"evaluate --dataset {STYLE} --seeds 0 0": "seeds must differ, but got [0, 0]",
        "evaluate --dataset tiny-bongard --seeds 0 0": "seeds must differ, but got [0, 0]",
        f"evaluate --dataset {STYLE} --num-workers -1": "num_workers must be 0 or more, but got -1",
        "evaluate --dataset tiny-bongard --n-views 4": "--n-views: not for Bongard problems",
        "evaluate --dataset tiny-bongard --order shuffle": "--order: not for Bongard problems",
        f"evaluate --dataset {STYLE} --methods tda --order sorted": "order must be one of dataset, shuffle, by-class",
        f"evaluate --dataset {STYLE} --methods tda --order domains": "order='domains' needs the domain of each sample",
        f"evaluate --dataset {STYLE} --order shuffle": "order was given, but none of the methods is online",
        f"evaluate --dataset {STYLE} --methods tda --backend ray": "'TDA' is an online method",
        "evaluate --dataset tiny-bongard --template 'a {}' --backend ray": "--template, --backend: not for Bongard",
        "evaluate --dataset tiny-bongard --methods zero_shot": "there is no method 'zero_shot'; there are prototype, tpt",
        "classify a.png --classes cat dog --top 0": "--top must be at least 1, but is 0",
        "classify a.png --classes cat dog --device abacus": "--device abacus cannot be used",
        "classify a.png --classes cat dog --method tpd": "there is no method 'tpd'",
    }.items():
        code, out, (error,) = ran(capsys, line)
        assert (code, out) == (2, "")
        assert says in error
    assert list(tmp_path.iterdir()) == []


def test_warnings_are_one_line(capsys, monkeypatch):
    def command(args):
        with warnings.catch_warnings():
            warnings.simplefilter("always")
            warnings.warn("the split is\nanother", stacklevel=1)
        return 0

    monkeypatch.setattr(models, "run", command)
    assert ran(capsys, "models") == (0, "", ["tpt-lib: warning: the split is another"])


def test_a_text_that_the_stream_cannot_encode_is_escaped(monkeypatch):
    out = io.TextIOWrapper(io.BytesIO(), encoding="cp1252", errors="strict")
    monkeypatch.setattr(sys, "stdout", out)
    monkeypatch.setattr(models, "run", lambda args: sys.stdout.write("猫 …\n") and 0)
    assert main(["models"]) == 0
    assert out.buffer.getvalue() == b"\\u732b \x85" + os.linesep.encode()


def test_a_reader_that_has_gone_is_no_error(monkeypatch):
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w") as out:
        monkeypatch.setattr(sys, "stdout", out)
        assert main(["datasets"]) == 0


@pytest.mark.slow
def test_as_a_program(tmp_path):
    done = subprocess.run([sys.executable, "-m", "tpt_lib", "report", "none"], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "tpt-lib: error: [Errno 2] No such file or directory: 'none'\n"
