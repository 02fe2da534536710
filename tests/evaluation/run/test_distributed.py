"""Ranks of torchrun write what one process writes."""

import subprocess
import sys

import pytest
from support.noise_runs import Noise, as_rank, content, environment, run

from tpt_lib.evaluation.run.distributed import share
from tpt_lib.evaluation.run_file import merge_run_files

STREAM_RANKS = """
import sys, torch
torch.set_num_threads(1)
from support.noise_runs import run
report = run(sys.argv[1], methods=["zero_shot", "tda"], streams="per-rank")
assert {row["n"] for row in report.rows()} == {12}
"""

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
    assert list(tmp_path.glob("*.lock")) == []
    shares = [content(tmp_path / f"run.jsonl.rank{rank}")[1:] for rank in (0, 1)]
    assert [{row["sample"] % 2 for row in rows} for rows in shares] == [{0}, {1}]


@pytest.mark.slow
def test_each_rank_of_torchrun_has_a_stream(tmp_path):
    (tmp_path / "job.py").write_text(STREAM_RANKS)
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2", "--master-port=29714"]
    command += [str(tmp_path / "job.py"), str(tmp_path / "run.jsonl")]
    subprocess.run(command, check=True, capture_output=True, env=environment())
    header, *rows = content(tmp_path / "run.jsonl")
    assert header["settings"]["stream"]["ranks"] == 2
    assert [row["sample"] for row in rows] == list(range(12))
    assert sorted(file.name for file in tmp_path.glob("run*")) == ["run.jsonl", "run.jsonl.rank0", "run.jsonl.rank1"]


def test_a_process_without_torchrun_has_all(monkeypatch):
    assert share() == (0, 1)
    monkeypatch.setenv("RANK", "2")
    monkeypatch.setenv("WORLD_SIZE", "4")
    assert share() == (2, 4)


@pytest.mark.parametrize("rank", [0, 1])
def test_ranks_check_the_merged_file_before_the_work(rank, tmp_path, monkeypatch):
    out = tmp_path / "run.jsonl"
    run(out, Noise(4))
    before = out.read_bytes()
    as_rank(monkeypatch, rank, 2)
    with pytest.raises(
        ValueError, match=r"run\.jsonl' belongs to a run with different settings \(seeds is \[0\] there"
    ):
        run(out, Noise(4), seeds=(0, 1))
    assert out.read_bytes() == before
    out.write_text("precious")
    with pytest.raises(ValueError, match=r"run\.jsonl' is not a run file: it starts with b'precious'"):
        run(out, Noise(4))
    assert [file.name for file in tmp_path.iterdir()] == ["run.jsonl"]


def test_rank_0_also_locks_the_merged_file_until_it_is_merged(tmp_path, monkeypatch):
    locked = []

    def look(*_):
        locked.append(sorted(file.name for file in tmp_path.glob("*.lock")))

    for rank in (1, 0):
        as_rank(monkeypatch, rank, 2, look)
        run(tmp_path / "run.jsonl", Noise(2))
    assert locked == [["run.jsonl.rank1.lock"], ["run.jsonl.lock", "run.jsonl.rank0.lock"]]


def test_more_ranks_than_samples(tmp_path, monkeypatch):
    for rank in (2, 1, 0):
        as_rank(monkeypatch, rank, 3, lambda out, shares, rank=rank: rank or merge_run_files(shares, out))
        run(tmp_path / "run.jsonl", Noise(2))
    assert [row["sample"] for row in content(tmp_path / "run.jsonl")[1:]] == [0, 1]
