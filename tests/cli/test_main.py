"""Errors, warnings and exit codes; once as a program."""

import io
import os
import subprocess
import sys
import warnings

import pytest
from support.command_line import ran

from tpt_lib.cli import main
from tpt_lib.cli.commands import COMMANDS


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
    monkeypatch.setitem(COMMANDS, "models", failing(error))
    assert ran(capsys, "models") == (code, "", [line])
    if isinstance(error, Exception):
        assert ran(capsys, "models --debug")[2][0] == "Traceback (most recent call last):"


def test_warnings_are_one_line(capsys, monkeypatch):
    def command(args):
        with warnings.catch_warnings():
            warnings.simplefilter("always")
            warnings.warn("the split is\nanother", stacklevel=1)
        return 0

    monkeypatch.setitem(COMMANDS, "models", command)
    assert ran(capsys, "models") == (0, "", ["tpt-lib: warning: the split is another"])


def test_a_text_that_the_stream_cannot_encode_is_escaped(monkeypatch):
    out = io.TextIOWrapper(io.BytesIO(), encoding="cp1252", errors="strict")
    monkeypatch.setattr(sys, "stdout", out)
    monkeypatch.setitem(COMMANDS, "models", lambda args: sys.stdout.write("猫 …\n") and 0)
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
