"""Ranks of torchrun and actors of a Ray cluster write what one process writes."""

import os
import signal
import subprocess
import sys

import pytest
from support.noise_runs import Noise, assert_close, content, environment, run

from tpt_lib.evaluation.run.distributed import share

RANKS = """
import sys, torch
torch.set_num_threads(1)
from support.noise_runs import run
report = run(sys.argv[1], seeds=(0, 1))
assert {row["n"] for row in report.rows()} == {12}
"""


@pytest.mark.slow
def test_ranks_of_torchrun_merge_their_rows(whole, tmp_path):
    (tmp_path / "job.py").write_text(RANKS)
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2", "--master-port=29713"]
    command += [str(tmp_path / "job.py"), str(tmp_path / "run.jsonl")]
    subprocess.run(command, check=True, capture_output=True, env=environment())
    assert content(tmp_path / "run.jsonl") == content(whole)
    shares = [content(tmp_path / f"run.jsonl.rank{rank}")[1:] for rank in (0, 1)]
    assert [{row["sample"] % 2 for row in rows} for rows in shares] == [{0}, {1}]


def test_a_process_without_torchrun_has_all(monkeypatch):
    assert share() == (0, 1)
    monkeypatch.setenv("RANK", "2")
    monkeypatch.setenv("WORLD_SIZE", "4")
    assert share() == (2, 4)


@pytest.mark.slow
def test_a_ray_cluster_gives_the_same_rows_while_a_worker_dies(whole, tmp_path):
    import ray

    pids = tmp_path / "pids"
    pids.mkdir()

    class Watched(Noise):
        """Notes the process that reads it; the first one to read sample 5 kills itself, as the kernel would."""

        def __getitem__(self, i):
            (pids / str(os.getpid())).touch()
            if i == 5 and not (tmp_path / "killed").exists():
                (tmp_path / "killed").touch()
                os.kill(os.getpid(), signal.SIGKILL)
            return super().__getitem__(i)

    variables = {"PYTHONPATH": environment()["PYTHONPATH"], "OMP_NUM_THREADS": "1"}
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, runtime_env={"env_vars": variables})
    try:
        run(tmp_path / "run.jsonl", Watched(), seeds=(0, 1), backend="ray", num_workers=2, batch_size=2)
    finally:
        ray.shutdown()
    assert (tmp_path / "killed").exists()
    assert len(list(pids.iterdir())) >= 3  # two workers, and the one that took the place of the dead
    assert str(os.getpid()) not in {file.name for file in pids.iterdir()}
    assert_close(tmp_path / "run.jsonl", whole)


def test_a_missing_ray_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ImportError, match=r'backend="ray" needs Ray: pip install "tpt_lib\[ray\]"'):
        run(tmp_path / "run.jsonl", Noise(2), backend="ray", num_workers=1)
