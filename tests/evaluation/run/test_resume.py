"""Runs that are killed and resumed, and files that belong to another run."""

import functools
import os
import random
import signal
import subprocess
import sys
import time

import pytest
import torch
from support.noise_runs import METHODS, Noise, OwnClip, content, environment, lines_of, model, noise, run
from support.zoo import fresh

import tpt_lib
from tpt_lib import EvalSet, evaluate_bongard, tpt_predict


def killed(path, more, delay):
    """Evaluate in a forked process, and kill it a moment after so many more lines have been written."""
    wanted = lines_of(path) + more
    child = os.fork()
    if child == 0:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        run(path, Noise(slow=0.005), seeds=(0, 1))
        os._exit(0)
    deadline = time.monotonic() + 30
    while lines_of(path) < min(wanted, 25) and time.monotonic() < deadline:
        time.sleep(0.002)
    time.sleep(delay)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)


@pytest.mark.slow
def test_thirty_kills_at_random_moments_lose_nothing(whole, tmp_path):
    path = tmp_path / "run.jsonl"
    chance = random.Random(0)
    seen = [0]
    for _ in range(30):
        killed(path, chance.choice([0, 1, 1, 2]), chance.uniform(0, 0.03))
        seen.append(lines_of(path))
        assert seen[-1] >= seen[-2] - 1  # at most the line in flight
    assert len({n for n in seen if 1 < n < 25}) > 5, seen
    run(path, seeds=(0, 1))
    assert content(path) == content(whole)


JOB = """
import sys, torch
torch.set_num_threads(1)
from pathlib import Path
from support.noise_runs import Noise, OwnClip, run
run(Path(sys.argv[1]), Noise(slow=float(sys.argv[2])), model=OwnClip(), seeds=(0, 1))
"""


def started(path, slow=0.0):
    return subprocess.Popen([sys.executable, "-c", JOB, str(path), str(slow)], env=environment())


@pytest.mark.slow
def test_a_model_of_ones_own_is_killed_in_one_process_and_resumed_in_another(tmp_path):
    path, deadline = tmp_path / "run.jsonl", time.monotonic() + 120
    first = started(path, slow=0.1)
    try:
        while lines_of(path) < 6 and first.poll() is None and time.monotonic() < deadline:
            time.sleep(0.01)
    finally:
        first.kill()
    assert first.wait() == -signal.SIGKILL
    kept = path.read_bytes().splitlines(keepends=True)
    assert 6 <= len(kept) < 25
    complete = b"".join(line for line in kept if line.endswith(b"\n"))
    assert started(path).wait(timeout=120) == 0
    assert path.read_bytes().startswith(complete)  # what was done is not computed again: its seconds are the first's
    run(tmp_path / "whole.jsonl", model=OwnClip(), seeds=(0, 1))
    assert content(path) == content(tmp_path / "whole.jsonl")


class Passing(Noise):
    """Samples that fail once, each for its own reason, and are good afterwards."""

    def __init__(self, folder, reasons):
        super().__init__(len(reasons))
        self.folder, self.reasons = folder, reasons

    def __getitem__(self, i):
        failed = self.folder / f"failed{i}"
        if self.reasons[i] is not None and not failed.exists():
            failed.touch()
            raise self.reasons[i]
        return super().__getitem__(i)


REASONS = [
    None,
    FileNotFoundError("gone"),
    OSError(116, "Stale file handle"),
    MemoryError("13 GB"),
    tpt_lib.ImageError("truncated"),
    ValueError("a bug in a transform"),
]


@pytest.mark.parametrize(("options", "final"), [({}, [4]), ({"retry_errors": True}, [])])
def test_failures_that_may_pass_are_tried_again_when_a_run_is_resumed(options, final, whole, tmp_path):
    path = tmp_path / "run.jsonl"
    data = Passing(tmp_path, REASONS)
    first = run(path, data)
    assert [said["errors"] for said in first.rows()] == [5, 5]
    before = path.read_bytes()
    again = run(path, data, **options)
    assert path.read_bytes().startswith(before)
    assert [said["errors"] for said in again.rows()] == [len(final)] * 2
    assert [row["sample"] for row in again.runs[0].rows if "error" in row] == final
    for row in again.runs[0].rows:
        if "error" not in row:
            assert row["methods"] == content(whole)[1 + row["sample"]]["methods"]
    before = path.read_bytes()
    run(path, data, **options)
    assert path.read_bytes() == before


def test_what_still_fails_is_not_written_again(tmp_path):
    path = tmp_path / "run.jsonl"
    run(path, Noise(3, bad=[1]))
    before = path.read_bytes()
    report = run(path, Noise(3, bad=[1]), retry_errors=True)
    assert path.read_bytes() == before
    assert [said["errors"] for said in report.rows()] == [1, 1]


def test_a_second_process_on_the_same_file_is_refused(tmp_path):
    path = tmp_path / "run.jsonl"

    class Twice(Noise):
        def __getitem__(self, i):
            if i == 1:
                with pytest.raises(BlockingIOError, match=f"run.jsonl' is being written by process {os.getpid()} on"):
                    run(path, Noise(3))
            return super().__getitem__(i)

    run(path, Twice(3))
    assert ["error" in row for row in content(path)[1:]] == [False] * 3
    assert list(tmp_path.iterdir()) == [path]


def test_what_is_no_run_file_is_refused_before_the_work(tmp_path, monkeypatch):
    for module in ("evaluate", "evaluate_bongard"):
        monkeypatch.setattr(f"tpt_lib.evaluation.run.{module}.identify", None)
    (tmp_path / "mine.json").write_text('{"precious": 1}')
    os.mkfifo(tmp_path / "pipe")
    problems = EvalSet("bongard", [((), (), (), ("positive",))], ("positive", "negative"))
    for out in (tmp_path, tmp_path / "pipe", "/dev/full"):
        for call in (run, lambda out: evaluate_bongard(model(), problems, "tpt", out=out)):
            with pytest.raises(ValueError, match=r"' is a .*; a run file must be a regular file"):
                call(out)
    monkeypatch.undo()
    with pytest.raises(ValueError, match=r"mine\.json' is not a run file: it starts with b'{\"precious\": 1}'"):
        run(tmp_path / "mine.json")
    assert (tmp_path / "mine.json").read_text() == '{"precious": 1}'


def test_a_missing_torchmetrics_is_named_before_the_work(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "torchmetrics", None)
    problems = EvalSet("bongard", [((), (), (), ("positive",))], ("positive", "negative"))
    for call in (
        lambda: run(tmp_path / "run.jsonl"),
        lambda: evaluate_bongard(model(), problems, "tpt", out=tmp_path / "run.jsonl"),
        lambda: tpt_lib.paper.transfer_matrix(model(), [noise()], [noise()], out=tmp_path / "folder"),
    ):
        with pytest.raises(ImportError, match=r'needs? torchmetrics: pip install "tpt_lib\[evaluate\]"'):
            call()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("cut", [1, 7, 40])
def test_half_a_line_is_dropped(cut, whole, tmp_path):
    path = tmp_path / "run.jsonl"
    path.write_bytes(b"".join(whole.read_bytes().splitlines(keepends=True)[:9])[:-cut])
    run(path, seeds=(0, 1))
    assert content(path) == content(whole)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"seeds": (0,)}, r"seeds is \[0, 1\] there and \[0\] here"),
        ({"n_views": 4}, r"settings.views.n_views is 8 there and 4 here"),
        ({"recipe": "augmix"}, r"settings.views.recipe is 'crop' there and 'augmix' here"),
        ({"samples": Noise(11)}, "n is 12 there and 11 here"),
        ({"methods": "zero_shot"}, "methods is"),
        (
            {"methods": {**METHODS, "TPT": functools.partial(tpt_predict, steps=2)}},
            r"settings\.methods\.TPT is .*steps=2",
        ),
    ],
)
def test_another_run_in_the_same_file_is_refused(change, message, whole):
    before = whole.read_bytes()
    with pytest.raises(ValueError, match=rf"belongs to a run with different settings \(.*{message}"):
        run(whole, **{"seeds": (0, 1), **change})
    assert whole.read_bytes() == before


def test_another_model_in_the_same_file_is_refused(whole):
    before = whole.read_bytes()
    other = fresh("open_clip-vit")
    run(whole, seeds=(0, 1), model=other)  # a copy with equal weights is the same model
    with torch.no_grad():
        other.module.visual.proj[0, 0] += 1
    with pytest.raises(ValueError, match=r"different settings \(settings\.weights is '\w+' there and '\w+' here"):
        run(whole, seeds=(0, 1), model=other)
    assert whole.read_bytes() == before


class OwnModule(torch.nn.Module):
    """A model of one's own that is a module."""

    def __init__(self):
        super().__init__()
        inner = fresh("open_clip-vit")
        self.weights = inner.module
        for name in ("image_spec", "logit_scale", "logit_bias", "tokenize", "embed_tokens", "encode_embeddings"):
            setattr(self, name, getattr(inner, name))
        self.encode_image = inner.encode_image


def test_a_module_of_ones_own_is_known_by_its_weights(tmp_path):
    path = tmp_path / "run.jsonl"
    run(path, Noise(3), model=OwnModule())
    before = path.read_bytes()
    other = OwnModule()
    run(path, Noise(3), model=other)
    assert path.read_bytes() == before
    with torch.no_grad():
        other.weights.visual.proj[0, 0] += 1
    with pytest.raises(ValueError, match=r"different settings \(settings\.weights is '\w+' there"):
        run(path, Noise(3), model=other)


def test_the_model_and_the_prompts_are_in_the_settings(whole):
    settings = content(whole)[0]["settings"]
    assert settings["model"] == type(model().module).__name__
    assert settings["methods"]["TPT"].startswith("tpt_lib.methods.tpt.tpt_predict() on prompts ")
