"""The scripts of the repository as modules."""

import importlib.util
import pathlib

ROOT = pathlib.Path(__file__).parents[2]


def script(name, folder="scripts"):
    """Return a script, executed as a module of its own each time."""
    spec = importlib.util.spec_from_file_location(f"script_{name}", ROOT / folder / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
