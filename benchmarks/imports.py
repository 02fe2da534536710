"""What ``import tpt_lib`` costs beyond torch, in fresh processes. ``python benchmarks/imports.py``"""

import statistics
import subprocess
import sys

CODE = "import time, torch; start = time.perf_counter(); import tpt_lib; print(time.perf_counter() - start)"

runs = [float(subprocess.run([sys.executable, "-c", CODE], capture_output=True, check=True).stdout) for _ in range(7)]
print(
    f"import tpt_lib beyond torch: median {statistics.median(runs):.3f} s, from {min(runs):.3f} to {max(runs):.3f}, 7 runs"
)
