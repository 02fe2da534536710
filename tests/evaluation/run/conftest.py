import pytest
from support.noise_runs import run


@pytest.fixture(scope="session")
def whole(tmp_path_factory):
    """The file of a run that nothing interrupted."""
    path = tmp_path_factory.mktemp("runs") / "whole.jsonl"
    run(path, seeds=(0, 1))
    return path
