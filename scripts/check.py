"""Run every check that must pass before a change lands: lint, types, generated pages, site, notebooks, tests.

``python scripts/check.py``
"""

import subprocess
import sys
import time
from pathlib import Path

CHECKS = [
    ["-m", "ruff", "check"],
    ["-m", "ruff", "format", "--check"],
    ["-m", "mypy"],
    ["-m", "mypy", "benchmarks"],
    ["scripts/examples.py"],
    ["scripts/architectures.py", "--check"],
    ["scripts/methods.py", "--check"],
    ["scripts/costs.py", "--check"],
    ["scripts/site.py"],
    ["scripts/notebooks.py", "--check"],
    ["-m", "pytest", "--numprocesses=auto", "--dist=loadfile", "--durations=10"],
]

for check in CHECKS:
    start = time.perf_counter()
    print("$ python", *check, flush=True)
    code = subprocess.run([sys.executable, *check], cwd=Path(__file__).parent.parent, check=False).returncode
    print(f"  {time.perf_counter() - start:.0f} s\n", flush=True)
    if code:
        sys.exit(code)
