"""Cost of ``import tpt_lib`` beyond torch, in fresh processes."""

from harness import in_own_process, parser, spread, write_json

CODE = "import time, torch; start = time.perf_counter(); import tpt_lib; print(time.perf_counter() - start)"

arguments = parser(__doc__).parse_args()
runs = [in_own_process("-c", CODE) for _ in range(arguments.pairs)]
print(f"import tpt_lib beyond torch, {len(runs)} runs, median (min-max): {spread(runs).strip()}")
write_json(arguments.json, {"times": {"import tpt_lib": runs}})
