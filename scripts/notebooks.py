"""Execute the notebooks of examples/ from top to bottom and store what they show: ``python scripts/notebooks.py [names]``.

``--check`` executes and stores nothing; it fails if a cell fails, or shows another kind of thing than is stored.
"""

import argparse
import os
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError

EXAMPLES = Path(__file__).parents[1] / "examples"
KERNEL = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}


def executed(stored: Any) -> Any:
    """The same notebook with new outputs, run in an empty folder, without what differs between machines."""
    notebook = nbformat.from_dict({**stored, "metadata": KERNEL})
    with tempfile.TemporaryDirectory() as folder:
        NotebookClient(notebook, timeout=120, resources={"metadata": {"path": folder}}).execute()
    notebook.metadata = nbformat.from_dict(KERNEL)
    for cell in notebook.cells:
        cell.metadata = {}
    return notebook


def shown(notebook: Any) -> list[Any]:
    """What kinds of output each cell has."""
    outputs = [cell.get("outputs", []) for cell in notebook.cells]
    return [[(o.output_type, sorted(o.get("data", ()))) for o in each] for each in outputs]


def run(path: Path, check: bool) -> bool:
    stored, start = nbformat.read(path, as_version=4), time.perf_counter()
    try:
        notebook = executed(stored)
    except CellExecutionError as error:
        print(f"{path.name}: {error}")
        return False
    seconds = time.perf_counter() - start
    if not check:
        nbformat.write(notebook, path)
    elif shown(notebook) != shown(stored):
        print(f"{path.name} does not show what it shows when executed: python scripts/notebooks.py {path.name}")
        return False
    print(f"{path.name}: {seconds:.0f} s", flush=True)
    return True


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--check", action="store_true")
    wanted = parser.parse_args()
    paths = [EXAMPLES / name for name in wanted.names] or sorted(EXAMPLES.glob("*.ipynb"))
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # two kernels at a time on two cores
    with ThreadPoolExecutor(2) as pool:
        return 0 if all(list(pool.map(lambda path: run(path, wanted.check), paths))) else 1


if __name__ == "__main__":
    sys.exit(main())
