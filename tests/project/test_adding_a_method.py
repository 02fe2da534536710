"""What docs/adding_a_method.md shows, step by step."""

import os
import pathlib
import re
import subprocess
import sys

import pytest

import tpt_lib
from tpt_lib.methods import base

ROOT = pathlib.Path(__file__).parents[2]
PAGE = (ROOT / "docs/adding_a_method.md").read_text(encoding="utf-8")
CODE = dict(re.findall(r"^<!-- (the [\w ]+) -->\n```python\n(.*?)^```", PAGE, flags=re.MULTILINE | re.DOTALL))
NAME, IMPORTED = "weighted_average", "src/tpt_lib/methods/__init__.py"


@pytest.fixture
def registered(monkeypatch):
    """The method of the page, for this test."""
    monkeypatch.setattr(base, "_entries", dict(base._entries))
    exec(compile(CODE["the method"], "the method", "exec"), {"__name__": f"tpt_lib.methods.{NAME}"})


@pytest.mark.usefixtures("registered")
def test_it_runs_in_classify_and_compare(capsys):
    exec(CODE["the first use"], {})
    said = capsys.readouterr().out
    assert "<Prediction" in said
    assert "weighted average" in said
    assert NAME in tpt_lib.list_methods()


@pytest.mark.usefixtures("registered")
def test_its_test_passes_and_can_fail(monkeypatch):
    names = {}
    exec(CODE["the test"], names)
    names["test_views_are_weighted_by_their_confidence"]()
    monkeypatch.setitem(base._entries, NAME, tpt_lib.get_method("view_average"))
    with pytest.raises(AssertionError):
        names["test_views_are_weighted_by_their_confidence"]()


def test_every_list_of_the_page_exists():
    steps = PAGE.partition("## 4. Add it to the lists")[2]
    files = re.findall(r"^\d\. `([\w./]+)`", steps, flags=re.MULTILINE)
    assert len(files) == 5
    assert all((ROOT / file).is_file() for file in [*files, *re.findall(r"scripts/\w+\.py", steps)])
    assert all("average_predict" in (ROOT / file).read_text(encoding="utf-8") for file in (IMPORTED, *files[1:3]))
    assert IMPORTED in PAGE.partition("## 3.")[0], "nothing finds the method before it is imported"


@pytest.mark.slow
def test_the_conformance_suite_runs_over_it(tmp_path):
    """In a process of its own, which registers the method before the suite lists them."""
    (tmp_path / f"{NAME}.py").write_text(CODE["the method"], encoding="utf-8")
    suite = [ROOT / "tests/conformance/test_methods.py", "-k", f"{NAME} and not slow", "-m", "not slow"]
    command = [sys.executable, "-m", "pytest", "-o", "addopts=", "--import-mode=importlib", "-p", NAME, *suite]
    paths = os.pathsep.join([str(tmp_path), str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])
    said = subprocess.run(command, cwd=ROOT, env={**os.environ, "PYTHONPATH": paths}, capture_output=True, text=True)
    assert said.returncode == 0, said.stdout
    assert int(re.search(r"(\d+) passed", said.stdout)[1]) > 20
