"""Make an environment with every required dependency at its lower bound, and run the quick tests in it.

``python scripts/check.py --oldest`` calls this. The environment stays in ``build/oldest``, so that a second run downloads
nothing.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
import venv
from pathlib import Path

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "build/oldest"
QUICK = ["-m", "not slow", "--numprocesses=auto", "--dist=loadfile"]
QUICK += ["-p", "no:anyio"]  # the plugin of an older anyio warns, which is an error


def lower_bounds(pyproject: Path = ROOT / "pyproject.toml") -> dict[str, str]:
    """Return the lower bound of each required dependency; one without a bound is an error."""
    found = {}
    for requirement in tomllib.loads(pyproject.read_text(encoding="utf-8"))["project"]["dependencies"]:
        match = re.fullmatch(r"([\w-]+)>=([\d.]+)", requirement)
        if match is None:
            raise SystemExit(f"{pyproject}: {requirement!r} has no lower bound; expected name>=version")
        found[match[1]] = match[2]
    return found


def python_of(folder: Path) -> Path:
    """Return the interpreter of a virtual environment."""
    return folder / ("Scripts/python.exe" if sys.platform == "win32" else "bin/python")


def make_environment(folder: Path) -> Path:
    """Install the package with its tests at the lower bounds, and return the interpreter."""
    python = python_of(folder)
    if not python.exists():
        venv.create(folder, with_pip=True)
    pins = folder / "oldest.txt"
    pins.write_text("".join(f"{name}=={version}\n" for name, version in lower_bounds().items()), encoding="utf-8")
    subprocess.run([python, "-m", "pip", "install", "--quiet", "--upgrade", "pip"], check=True)
    subprocess.run([python, "-m", "pip", "install", "--constraint", pins, "-e", ".[test]"], cwd=ROOT, check=True)
    return python


def run() -> int:
    """Run the quick tests in the environment and return pytest's exit code."""
    python = make_environment(FOLDER)
    subprocess.run([python, "-m", "pip", "list"], check=True)
    return subprocess.run([python, "-m", "pytest", *QUICK], cwd=ROOT, check=False).returncode
