"""What calls cost an accelerator, counted on a simulated one: launches, waits of the host with their lines, bytes moved.

ViT-B/16's text tower with random weights, and an image tower with its layers and image size, but narrow; the second call is
counted. Counts are exact and depend on no machine. Launches and bytes are per image, synchronizations per call or batch. Fused
attention, one launch on CUDA, decomposes into several here.
"""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path
from typing import Any

import open_clip
from harness import parser, prepare, write_json

sys.path.append(str(Path(__file__).parents[1] / "tests"))
from support.device_costs import BARS, calls_of, narrow_module
from support.simulated import counting

COLUMNS = ("launches", "synchronizations", "bytes_in", "bytes_out", "bytes_from_worker")


def shown(call: str, cost: dict[str, Any]) -> str:
    """Return the lines of one call: its counts with their bars, and what it waited for."""
    counts = []
    for column in COLUMNS:
        bar = f" (bar {BARS[call, column]:,})" if (call, column) in BARS else ""
        if cost[column] or bar:
            counts.append(f"{cost[column]:,.0f} {column}{bar}")
    lines = ", ".join(f"{line} {number}" for line, number in cost["waits"].items())
    return f"  {call:34} {'; '.join(counts)}" + (f"\n  {'':34} waits: {lines}" if lines else "")


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--quick", action="store_true", help="a narrow text tower, which launches the same")
    arguments = options.parse_args()
    prepare(open_clip)
    module = narrow_module() if arguments.quick else narrow_module(width=512, heads=8)
    found = {}
    print("\nLaunches and bytes per image, synchronizations per call or batch")
    with counting():
        for call, count in calls_of(module).items():
            found[call] = dataclasses.asdict(count())
            print(shown(call, found[call]), flush=True)
    bars = [{"call": call, "count": column, "bar": bar} for (call, column), bar in BARS.items()]
    write_json(arguments.json, {"costs": found, "bars": bars})


if __name__ == "__main__":
    main()
