import pytest
from support.command_line import tiny


@pytest.fixture(autouse=True)
def empty_folder(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)


@pytest.fixture(autouse=True)
def one_model(monkeypatch):
    """The embedded model, loaded once for all commands."""
    monkeypatch.setattr("tpt_lib.load_tiny", tiny)
