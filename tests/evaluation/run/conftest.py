import pytest
from support.noise_runs import run

from tpt_lib.evaluation.run import stream_state


@pytest.fixture(scope="session")
def whole(tmp_path_factory):
    """The file of a run that nothing interrupted."""
    path = tmp_path_factory.mktemp("runs") / "whole.jsonl"
    run(path, seeds=(0, 1))
    return path


@pytest.fixture
def saved_after_each(monkeypatch):
    """States are saved after each group."""
    monkeypatch.setattr(stream_state, "SECONDS", 0.0)
    monkeypatch.setattr(stream_state, "SHARE", 0.0)
