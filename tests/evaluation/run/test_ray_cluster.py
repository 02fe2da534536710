"""Actors of a Ray cluster write what one process writes."""

import os
import signal
import subprocess
import sys
import time

import pytest
from support.noise_runs import Noise, OwnClip, as_rank, assert_close, content, environment, model, run
from support.stores import encoded

from tpt_lib.evaluation.run_file import merge_run_files


@pytest.fixture(scope="module")
def cluster():
    """A cluster that all tests share: starting one takes seconds, and so does an actor, which imports torch."""
    import ray

    context = ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, runtime_env={"env_vars": variables()})
    yield context.address_info["address"]
    ray.shutdown()


def variables():
    return {"PYTHONPATH": environment()["PYTHONPATH"], "OMP_NUM_THREADS": "1"}


class Watched(Noise):
    """Notes each actor that reads a sample; the first ``deaths[i]`` readers of sample i kill themselves."""

    def __init__(self, folder, deaths):
        super().__init__()
        self.folder, self.deaths, self.parent = folder, deaths, os.getpid()

    def readers(self, i):
        return [int(file.suffix[1:]) for file in self.folder.glob(f"{i}.*")]

    def __getitem__(self, i):
        if os.getpid() != self.parent:
            (self.folder / f"{i}.{os.getpid()}").touch()
        if os.getpid() != self.parent and len(self.readers(i)) <= self.deaths.get(i, 0):
            os.kill(os.getpid(), signal.SIGKILL)  # as the kernel would
        return super().__getitem__(i)


@pytest.mark.slow
@pytest.mark.usefixtures("cluster")
def test_rows_are_those_of_one_process_while_actors_die(tmp_path):
    """A sample whose actor dies is tried again; one that kills every actor becomes an error row."""
    data = Watched(tmp_path, deaths={5: 1, 9: 99})
    run(tmp_path / "run.jsonl", data, backend="ray", num_workers=2, batch_size=3)
    assert (len(data.readers(5)), len(data.readers(9))) == (2, 3)
    path, one = tmp_path / "run.jsonl", tmp_path / "one.jsonl"
    lines = path.read_text().splitlines(keepends=True)
    rows = content(path)[1:]
    assert [row["sample"] for row in rows] == list(range(12))
    assert [row["sample"] for row in rows if "error" in row] == [9]
    assert rows[9]["error"].startswith("ActorDied: the Ray actor died 3 times while it had this sample")
    run(one)
    wanted = one.read_text().splitlines(keepends=True)
    path.write_text("".join([*lines[:10], *lines[11:]]))
    one.write_text("".join([*wanted[:10], *wanted[11:]]))
    assert_close(path, one)


STREAM = {"zero-shot": "zero_shot", "TDA": "tda", "OnZeta": "onzeta"}


@pytest.mark.slow
@pytest.mark.usefixtures("cluster")
def test_streams_are_those_of_ranks_while_workers_die(tmp_path, monkeypatch):
    """Three deaths end the run with an error. The same call resumes it, here with one more death."""
    for rank in (1, 0):
        as_rank(monkeypatch, rank, 2, lambda out, shares, rank=rank: rank or merge_run_files(shares, out))
        run(tmp_path / "ranks.jsonl", methods=STREAM, streams="per-rank")
    monkeypatch.undo()
    data, path = Watched(tmp_path, deaths={5: 4}), tmp_path / "run.jsonl"
    on_ray = {"methods": STREAM, "streams": "per-rank", "backend": "ray", "num_workers": 2, "batch_size": 2}
    with pytest.raises(RuntimeError, match=r"the Ray worker of a stream died 3 times; .* The same call resumes it"):
        run(path, data, **on_ray)
    assert len(data.readers(5)) == 3
    run(path, data, **on_ray)
    assert len(data.readers(5)) == 5
    assert_close(path, tmp_path / "ranks.jsonl")
    assert sorted(file.name for file in tmp_path.glob("run.jsonl*")) == [
        f"run.jsonl{end}" for end in ("", ".rank0", ".rank1")
    ]
    before = path.read_bytes()
    run(path, Noise(), **on_ray)
    assert path.read_bytes() == before


class Unstartable(OwnClip):
    def __reduce__(self):
        return os._exit, (1,)


@pytest.mark.slow
@pytest.mark.usefixtures("cluster")
def test_actors_that_cannot_start_are_an_error_of_the_run(tmp_path):
    with pytest.raises(RuntimeError, match="Ray actors die before they are given a sample"):
        run(tmp_path / "run.jsonl", Noise(), model=Unstartable(), backend="ray", num_workers=1)
    assert len(content(tmp_path / "run.jsonl")) == 1


@pytest.mark.slow
@pytest.mark.usefixtures("cluster")
def test_actors_fill_a_store_together(tmp_path):
    one, store = (encoded(tmp_path / name, seeds=(0, 1), model=model(), **options) for name, options in [
        ("one", {}), ("ray", {"backend": "ray", "num_workers": 2}),
    ])  # fmt: skip
    for seed in (0, 1):
        assert store.seed(seed).features(range(12)).allclose(one.seed(seed).features(range(12)), atol=1e-6)
    assert store.labels.equal(one.labels)


ENDLESS = """
import os, signal, sys, time, ray, torch
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it
from support.noise_runs import Noise, run
variables = {"PYTHONPATH": os.environ["PYTHONPATH"], "OMP_NUM_THREADS": "1"}
ray.init(address=sys.argv[3], log_to_driver=False, runtime_env={"env_vars": variables})

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
def test_signals_end_a_run(sent, cluster, tmp_path):
    started = tmp_path / "started"
    command = [sys.executable, "-c", ENDLESS, str(tmp_path / "run.jsonl"), str(started), cluster]
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
