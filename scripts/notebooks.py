"""Execute the notebooks of examples/ from top to bottom and store what they show: ``python scripts/notebooks.py [names]``.

``--check`` executes and stores nothing; it fails if a cell fails, or shows another kind of thing than is stored.
"""

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError
from nbformat.v4 import new_code_cell, new_notebook

EXAMPLES = Path(__file__).parents[1] / "examples"
KERNEL = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}


def execute(client: NotebookClient, notebook: Any, folder: Path) -> None:
    """In an empty folder and without what ran before, but for the modules that are loaded."""
    folder.mkdir()
    client.nb = new_notebook(cells=[new_code_cell(f"%reset -f\n%cd -q {folder}")])
    client.execute_cell(client.nb.cells[0], 0, store_history=False)
    client.nb = notebook
    for i, cell in enumerate(notebook.cells):
        client.execute_cell(cell, i, execution_count=sum(c.cell_type == "code" for c in notebook.cells[: i + 1]))
        cell.metadata = {}
    notebook.metadata = nbformat.from_dict(KERNEL)


def shown(notebook: Any) -> list[Any]:
    """What kinds of output each cell has."""
    outputs = [cell.get("outputs", []) for cell in notebook.cells]
    return [[(o.output_type, sorted(o.get("data", ()))) for o in each] for each in outputs]


def run(paths: Iterator[Path], check: bool) -> bool:
    """What is left of these in one kernel, which spares loading torch again."""
    good = True
    client = NotebookClient(new_notebook(metadata=KERNEL), timeout=600, coalesce_streams=True)
    with tempfile.TemporaryDirectory() as folder, client.setup_kernel():
        for path in paths:
            start, stored, notebook = time.perf_counter(), *(nbformat.read(path, as_version=4) for _ in range(2))
            try:
                execute(client, notebook, Path(folder, path.stem))
            except CellExecutionError as error:
                print(f"{path.name}: {error}", flush=True)
                good = False
                continue
            if not check:
                nbformat.write(notebook, path)
            elif shown(notebook) != shown(stored):
                print(f"{path.name} shows something else when executed: python scripts/notebooks.py {path.name}")
                good = False
            print(f"{path.name}: {time.perf_counter() - start:.0f} s", flush=True)
    return good


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--check", action="store_true")
    wanted = parser.parse_args()
    paths = [EXAMPLES / name for name in wanted.names] or sorted(EXAMPLES.glob("*.ipynb"))
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # two kernels on two cores
    os.environ["PYTHONWARNINGS"] = "ignore:IProgress not found"  # tqdm without ipywidgets
    left = iter(paths)  # each kernel takes the next one
    with ThreadPoolExecutor(2) as pool:
        return 0 if all(list(pool.map(lambda _: run(left, wanted.check), range(2)))) else 1


if __name__ == "__main__":
    sys.exit(main())
