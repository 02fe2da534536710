"""What the source imports is declared, and what is declared is imported; lower bounds are proven by scripts/check.py."""

import ast
import pathlib
import re
import subprocess
import sys
import tomllib

import pytest
from support.scripts import script

ROOT = pathlib.Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
CARD = {"torch", "open_clip_torch", "torchvision", "einops", "typing_extensions"}
FOR_DEVELOPERS = {"test", "docs", "dev"}
MODULES = {"pillow": "PIL", "open_clip_torch": "open_clip"}  # where a package is imported under another name


def packages(requirements):
    """Return the names of requirements as modules, without extras of this package."""
    names = [re.match(r"[\w-]+", one)[0] for one in requirements]
    return {MODULES.get(name, name) for name in names} - {"tpt_lib"}


def imported(source):
    """Return the modules of other packages that the files import, at any depth of their code, each with a place."""
    found = {}
    for path in sorted(source.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = []
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                names = [node.module]
            found |= {name.split(".")[0]: f"{path.relative_to(source)}:{node.lineno}" for name in names}
    return {name: place for name, place in found.items() if name not in {*sys.stdlib_module_names, "tpt_lib"}}


def differences(source, project):
    """Return imports that are not declared, and declared packages that are not imported."""
    extras = {k: v for k, v in project.get("optional-dependencies", {}).items() if k not in FOR_DEVELOPERS}
    declared = packages(project["dependencies"]).union(*map(packages, extras.values()))
    found = imported(source)
    return {f"{name} ({place})" for name, place in found.items() if name not in declared}, declared - set(found)


def test_imports_and_declared_dependencies_are_the_same():
    undeclared, unused = differences(ROOT / "src/tpt_lib", PROJECT)
    assert undeclared == set()
    assert unused == set()


def test_that_a_difference_is_noticed(tmp_path):
    (tmp_path / "a.py").write_text("import os\n\ndef f():\n    from PIL.Image import open\n    import yaml.nodes")
    project = {"dependencies": ["pillow>=1", "tqdm>=2"], "optional-dependencies": {"ray": ["ray"], "dev": ["ruff"]}}
    assert differences(tmp_path, project) == ({"yaml (a.py:5)"}, {"tqdm", "ray"})


def test_the_packages_of_the_design_are_required():
    assert {re.match(r"[\w-]+", one)[0] for one in PROJECT["dependencies"]} >= CARD


def test_every_required_dependency_has_a_lower_bound(tmp_path):
    oldest = script("oldest")
    assert len(oldest.lower_bounds()) == len(PROJECT["dependencies"])
    (tmp_path / "pyproject.toml").write_text('[project]\ndependencies = ["torch>=2.6", "tqdm"]')
    with pytest.raises(SystemExit, match="'tqdm' has no lower bound"):
        oldest.lower_bounds(tmp_path / "pyproject.toml")


def test_the_oldest_environment_has_exactly_the_bounds(tmp_path, monkeypatch):
    oldest, commands = script("oldest"), []
    monkeypatch.setattr(oldest.venv, "create", lambda folder, with_pip: None)
    monkeypatch.setattr(subprocess, "run", lambda command, **_: commands.append([str(part) for part in command]))
    oldest.make_environment(tmp_path)
    assert (tmp_path / "oldest.txt").read_text().splitlines()[:2] == ["torch==2.6", "torchvision==0.21"]
    assert commands[-1][-4:] == ["--constraint", str(tmp_path / "oldest.txt"), "-e", ".[test]"]


@pytest.mark.parametrize("arguments", [["lint", "spelling"], ["--oldest", "lint"]])
def test_what_check_does_not_understand(arguments):
    said = subprocess.run([sys.executable, ROOT / "scripts/check.py", *arguments], capture_output=True, text=True)
    assert said.returncode == 2
    assert "['spelling']; expected some of lint" in said.stderr or "--oldest runs alone" in said.stderr
