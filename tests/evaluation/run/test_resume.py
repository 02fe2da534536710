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
from support.noise_runs import METHODS, Noise, OwnClip, content, environment, lines_of, model, run
from support.zoo import fresh

from tpt_lib import tpt_predict


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
def test_twenty_kills_at_random_moments_lose_nothing(whole, tmp_path):
    path = tmp_path / "run.jsonl"
    chance = random.Random(0)
    seen = [0]
    for _ in range(20):
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
    with pytest.raises(ValueError, match=r"different settings \(settings\.image_tower is '\w+' there and '\w+' here\)"):
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
    with pytest.raises(ValueError, match=r"different settings \(settings\.image_tower is '\w+' there"):
        run(path, Noise(3), model=other)


def test_the_model_and_the_prompts_are_in_the_settings(whole):
    settings = content(whole)[0]["settings"]
    assert settings["model"] == type(model().module).__name__
    assert settings["methods"]["TPT"].startswith("tpt_lib.methods.tpt.tpt_predict on prompts ")
