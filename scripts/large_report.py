"""Write the page of a made-up run of 50,000 rows and open it: ``python scripts/large_report.py`` prints its size and seconds.

``--rows N`` and ``--methods N`` make another size.
"""

import argparse
import random
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import tpt_lib as tpt
from tpt_lib.evaluation import Run

sys.path.append(str(Path(__file__).parents[1] / "tests"))
CLASSES = 1000


def made_up(rows: int, methods: int) -> Run:
    """Return a run of methods that are right on 7 images of 10, each on other ones."""
    chance = random.Random(0)
    names = [f"method {i}" for i in range(methods)]
    settings = {"model": "made up", "stream": {"order": "shuffle"}}
    header: dict[str, Any] = {"kind": "run", "dataset": "made-up", "split": "test", "methods": names, "seeds": [0]}
    header |= {"classes": [f"class {i}" for i in range(CLASSES)], "n": rows, "settings": settings, "hash": ""}
    listed: list[Any] = []
    for i in range(rows):
        truth = chance.randrange(CLASSES)
        path = f"val/n{truth:08}/ILSVRC2012_val_{i:08}.JPEG"
        said = {name: answer(chance, truth) for name in names}
        seconds = {name: 0.01 * (at + 1) for at, name in enumerate(names)}
        row = {"kind": "row", "seed": 0, "sample": i, "path": path, "truth": truth, "position": i}
        listed.append({**row, "methods": said, "seconds": seconds})
    return Run(header, tuple(listed))  # type: ignore[arg-type]


def answer(chance: random.Random, truth: int) -> dict[str, Any]:
    top5 = chance.sample(range(CLASSES), 5)
    if chance.random() < 0.7:
        top5 = [truth, *(one for one in top5 if one != truth)][:5]
    after, before = (sorted((round(chance.random() / 2, 6) for _ in top5), reverse=True) for _ in range(2))
    said = {"index": top5[0], "confidence": after[0], "entropy": 1.0, "top5": top5, "top5_probs": after}
    return {**said, "zero_shot": {"index": top5[0], "top5": top5, "top5_probs": before, "probs": before}}


def measure(rows: int, methods: int, folder: Path) -> dict[str, float]:
    """Return the size of the page in MB, and the seconds to write it and to open it until the gallery is there."""
    from support.browser import open_browser

    report, file = tpt.Report((made_up(rows, methods),)), folder / "report.html"
    report.rows()  # loads torchmetrics
    start = time.perf_counter()
    report.to_html(file)
    found = {"MB": file.stat().st_size / 1e6, "seconds to write": time.perf_counter() - start}
    with open_browser() as browser:
        page = browser.new_page()
        page.goto("about:blank")
        start = time.perf_counter()
        page.goto(file.as_uri())
        page.wait_for_selector("#cards li")
        return {**found, "seconds to open": time.perf_counter() - start}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=50_000)
    parser.add_argument("--methods", type=int, default=5)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        for name, value in measure(asked.rows, asked.methods, Path(folder)).items():
            print(f"{name}: {value:.2f}")
