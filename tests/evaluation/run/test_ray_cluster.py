"""Actors of a Ray cluster write what one process writes."""

import os
import signal
import subprocess
import sys
import time

import pytest
from support.noise_runs import Noise, as_rank, assert_close, content, environment, run

from tpt_lib.evaluation.run_file import merge_run_files


@pytest.fixture(scope="module")
def cluster():
    import ray

    variables = {"PYTHONPATH": environment()["PYTHONPATH"], "OMP_NUM_THREADS": "1"}
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, runtime_env={"env_vars": variables})
    yield ray
    ray.shutdown()


class Watched(Noise):
    """Notes each actor that reads a sample; while fewer than ``deaths`` have read sample 5, the reader kills itself."""

    def __init__(self, folder, deaths):
        super().__init__()
        self.folder, self.deaths, self.parent = folder, deaths, os.getpid()

    def readers(self, i):
        return [int(file.suffix[1:]) for file in self.folder.glob(f"{i}.*")]

    def __getitem__(self, i):
        if os.getpid() != self.parent:
            (self.folder / f"{i}.{os.getpid()}").touch()
        if os.getpid() != self.parent and i == 5 and len(self.readers(5)) <= self.deaths:
            os.kill(os.getpid(), signal.SIGKILL)  # as the kernel would
        return super().__getitem__(i)


@pytest.mark.slow
@pytest.mark.usefixtures("cluster")
def test_a_ray_cluster_gives_the_same_rows_while_workers_die(whole, tmp_path):
    data = Watched(tmp_path, deaths=2)
    run(tmp_path / "run.jsonl", data, seeds=(0, 1), backend="ray", num_workers=2, batch_size=2)
    assert len(data.readers(5)) in (3, 4)  # two that died and one or two that did not, for two seeds
    assert_close(tmp_path / "run.jsonl", whole)


@pytest.mark.slow
@pytest.mark.usefixtures("cluster")
def test_a_sample_that_kills_its_actor_becomes_an_error_row(whole, tmp_path):
    data = Watched(tmp_path, deaths=99)
    run(tmp_path / "run.jsonl", data, backend="ray", num_workers=2, batch_size=3)
    assert len(data.readers(5)) == 3
    rows = content(tmp_path / "run.jsonl")[1:]
    assert [row["sample"] for row in rows] == list(range(12))
    assert [row["sample"] for row in rows if "error" in row] == [5]
    assert rows[5]["error"].startswith("ActorDied: the Ray actor died 3 times while it had this sample")
    wanted = content(whole)[1:]
    assert [row["methods"]["TPT"]["index"] for row in rows if "error" not in row] == [
        row["methods"]["TPT"]["index"] for row in wanted[:12] if row["sample"] != 5
    ]


STREAM = {"zero-shot": "zero_shot", "TDA": "tda", "OnZeta": "onzeta"}


@pytest.mark.slow
@pytest.mark.usefixtures("cluster")
def test_streams_of_a_ray_cluster_are_those_of_ranks_while_a_worker_dies(tmp_path, monkeypatch):
    for rank in (1, 0):
        as_rank(monkeypatch, rank, 2, lambda out, shares, rank=rank: rank or merge_run_files(shares, out))
        run(tmp_path / "ranks.jsonl", methods=STREAM, streams="per-rank")
    monkeypatch.undo()
    data, path = Watched(tmp_path, deaths=1), tmp_path / "run.jsonl"
    run(path, data, methods=STREAM, streams="per-rank", backend="ray", num_workers=2, batch_size=2)
    assert len(data.readers(5)) == 2
    assert_close(path, tmp_path / "ranks.jsonl")
    assert sorted(file.name for file in tmp_path.glob("run.jsonl*")) == [
        f"run.jsonl{end}" for end in ("", ".rank0", ".rank1")
    ]
    before = path.read_bytes()
    run(path, Noise(), methods=STREAM, streams="per-rank", backend="ray", num_workers=2)
    assert path.read_bytes() == before


@pytest.mark.slow
@pytest.mark.usefixtures("cluster")
def test_a_stream_whose_worker_always_dies_is_an_error_of_the_run(tmp_path):
    data, path = Watched(tmp_path, deaths=99), tmp_path / "run.jsonl"
    with pytest.raises(RuntimeError, match=r"the Ray worker of a stream died 3 times; .* The same call resumes it"):
        run(path, data, methods=STREAM, streams="per-rank", backend="ray", num_workers=2)
    assert len(data.readers(5)) == 3
    data.deaths = 0
    assert run(path, data, methods=STREAM, streams="per-rank", backend="ray", num_workers=2).rows()[0]["n"] == 12


class Unstartable(Noise):
    def __reduce__(self):
        return os._exit, (1,)


@pytest.mark.slow
@pytest.mark.usefixtures("cluster")
def test_actors_that_cannot_start_are_an_error_of_the_run(tmp_path):
    with pytest.raises(RuntimeError, match="Ray actors die before they are given a sample"):
        run(tmp_path / "run.jsonl", Unstartable(), backend="ray", num_workers=2)
    assert len(content(tmp_path / "run.jsonl")) == 1


ENDLESS = """
import os, signal, sys, time, ray, torch
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it
from support.noise_runs import Noise, run
variables = {"PYTHONPATH": os.environ["PYTHONPATH"], "OMP_NUM_THREADS": "1"}
ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, runtime_env={"env_vars": variables})

class Endless(Noise):
    started, parent = sys.argv[2], os.getpid()

    def __getitem__(self, i):
        if os.getpid() == self.parent:  # which looks at the data before the work
            return super().__getitem__(i)
        if i == 0:
            time.sleep(3600)
        open(self.started, "w").close()
        os._exit(1)  # an actor that always dies, next to one that never ends

run(sys.argv[1], Endless(2), backend="ray", num_workers=2)
"""


@pytest.mark.slow
@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM])
def test_signals_end_a_run_on_ray(sent, tmp_path):
    started = tmp_path / "started"
    command = [sys.executable, "-c", ENDLESS, str(tmp_path / "run.jsonl"), str(started)]
    child = subprocess.Popen(command, env=environment(), stderr=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + 120
        while not started.exists() and child.poll() is None and time.monotonic() < deadline:
            time.sleep(0.05)
        assert (started.exists(), child.poll()) == (True, None)
        child.send_signal(sent)
        assert child.wait(timeout=120) != 0
    finally:
        child.kill()
    run(tmp_path / "run.jsonl", Noise(2))  # the lock is released, and the run can be resumed
    assert len(content(tmp_path / "run.jsonl")) == 3


def test_a_missing_ray_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ImportError, match=r'backend="ray" needs Ray: pip install "tpt_lib\[ray\]"'):
        run(tmp_path / "run.jsonl", Noise(2), backend="ray", num_workers=1)
    assert list(tmp_path.iterdir()) == []
