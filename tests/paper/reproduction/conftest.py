import shutil

import jaxtyping
import pytest
from support.reproductions import as_published, done, write


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


@pytest.fixture(scope="session")
def finished_once(miniatures, tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(jaxtyping.config, "jaxtyping_disable", True)  # checks of shapes take most of the time
        as_published(patch)
        return done(miniatures, tmp_path_factory.mktemp("finished"))


@pytest.fixture
def finished(root, finished_once, tmp_path):
    """Table 2, reproduced in ``tmp_path``, which may be changed."""
    shutil.copytree(finished_once.plan.out.parent, tmp_path, dirs_exist_ok=True)
    return finished_once
