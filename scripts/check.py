"""Run every check that must pass before a change lands: lint, types, generated pages, site, notebooks, tests.

``python scripts/check.py``, or only some parts of it: ``python scripts/check.py lint types``. All checks but the tests run two
at a time.
``python scripts/check.py --oldest`` runs the quick tests, and nothing else, with every required dependency at its lower bound.
"""

import argparse
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import oldest

CHECKS = {
    "lint": [["-m", "ruff", "check"], ["-m", "ruff", "format", "--check"]],
    "types": [  # mypy cannot share a cache with another that runs
        ["-m", "mypy"],
        ["-m", "mypy", "--cache-dir=.mypy_cache/benchmarks", "benchmarks"],
        ["scripts/examples.py"],
    ],
    "pages": [
        ["scripts/api.py", "--check"],
        ["scripts/architectures.py", "--check"],
        ["scripts/methods.py", "--check"],
        ["scripts/costs.py", "--check"],
        ["scripts/readme.py", "--check"],
        ["scripts/train_tiny/card.py", "--check"],
        ["scripts/site.py"],
        ["scripts/notebooks.py", "--check"],
    ],
    # In the order of folders, whose last files are short. xdist's own order has files of few but long tests at the end.
    "tests": [["-m", "pytest", "--numprocesses=auto", "--dist=loadfile", "--no-loadscope-reorder", "--durations=10"]],
}


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"{', '.join(CHECKS)} (default: all)")
    parser.add_argument("--oldest", action="store_true", help="run the quick tests at the lower bounds of dependencies")
    args = parser.parse_args()
    if args.oldest and args.parts:
        parser.error(f"--oldest runs alone, but came with {args.parts}")
    if unknown := set(args.parts) - set(CHECKS):
        parser.error(f"unknown parts {sorted(unknown)}; expected some of {', '.join(CHECKS)}")
    return args


def run(check: list[str], **options: Any) -> tuple[int, str, float]:
    """Run a check, and return its exit code, what it printed if that is captured, and its seconds."""
    start = time.perf_counter()
    done = subprocess.run([sys.executable, *check], cwd=Path(__file__).parent.parent, check=False, text=True, **options)
    return done.returncode, done.stdout or "", time.perf_counter() - start


def main() -> int:
    args = parse()
    if args.oldest:
        return oldest.run()
    parts = args.parts or list(CHECKS)
    checks = [check for part in parts if part != "tests" for check in CHECKS[part]]
    captured = partial(run, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    with ThreadPoolExecutor(2) as pool:  # most of them use one core
        for check, (code, said, seconds) in zip(checks, pool.map(captured, checks), strict=True):
            print("$ python", *check, f"\n{said}  {seconds:.0f} s\n", flush=True)
            if code:
                pool.shutdown(cancel_futures=True)
                return code
    for check in CHECKS["tests"] if "tests" in parts else ():
        print("$ python", *check, flush=True)
        code, _, seconds = run(check)
        print(f"  {seconds:.0f} s\n", flush=True)
        if code:
            return code
    return 0


if __name__ == "__main__":
    sys.exit(main())
