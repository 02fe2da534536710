import pytest
from support.reproductions import as_published, write


@pytest.fixture(scope="session")
def miniatures(tmp_path_factory):
    """Datasets, written once; tests put their results elsewhere."""
    root = tmp_path_factory.mktemp("data")
    write(root)
    return root


@pytest.fixture
def root(miniatures, monkeypatch):
    """Datasets that the registry takes for whole."""
    as_published(monkeypatch)
    return miniatures
