"""Seconds and memory of a call."""

import time
from pathlib import Path

import pytest
import torch

from tpt_lib.evaluation.profiling import measured

CPU = torch.device("cpu")


def linux_tells_the_peak():
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return False
    return True


def test_seconds_are_those_of_the_call():
    result, cost = measured(lambda: time.sleep(0.05) or "slept", CPU)
    assert result == "slept"
    assert 0.05 <= cost.seconds < 10


@pytest.mark.skipif(not linux_tells_the_peak(), reason="the system does not report peak memory")
def test_memory_is_the_peak_above_what_was_held():
    held = torch.ones(64 * 2**18)
    for _ in range(2):
        result, cost = measured(lambda: float(torch.ones(64 * 2**18).sum()), CPU)
        assert result == 64 * 2**18
        assert 60 < cost.memory < 80
    assert measured(lambda: 1, CPU)[1].memory == pytest.approx(0, abs=3)
    assert len(held) == 64 * 2**18


def test_where_memory_cannot_be_told_it_is_none(monkeypatch):
    def refuse(*_):
        raise OSError

    monkeypatch.setattr("pathlib.Path.write_text", refuse)
    assert measured(lambda: 1, CPU)[1].memory is None
