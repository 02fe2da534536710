"""What ``import tpt_lib`` costs beyond torch, in fresh processes: ``python benchmarks/imports.py`` (``--json FILE`` too)."""

import argparse
import json
import statistics
import subprocess
import sys

CODE = "import time, torch; start = time.perf_counter(); import tpt_lib; print(time.perf_counter() - start)"

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--pairs", type=int, default=7, help="how many processes")
parser.add_argument("--json")
arguments = parser.parse_args()
command = [sys.executable, "-c", CODE]
runs = [float(subprocess.run(command, capture_output=True, check=True).stdout) for _ in range(arguments.pairs)]
print(
    f"import tpt_lib beyond torch: median {statistics.median(runs):.3f} s, from {min(runs):.3f} to {max(runs):.3f}, "
    f"{len(runs)} runs"
)
if arguments.json:
    with open(arguments.json, "w") as file:
        json.dump({"times": {"import tpt_lib": runs}}, file, indent=1)
