from dataclasses import replace

import pytest

from tpt_lib.evaluation.data import load


@pytest.fixture
def published(monkeypatch):
    """Make an entry of the registry expect the numbers of a miniature."""

    def change(name, **numbers):
        monkeypatch.setattr(load, "ENTRIES", {**load.ENTRIES, name: replace(load.ENTRIES[name], **numbers)})

    return change


@pytest.fixture
def small(published):
    """Make an entry expect three classes with two images per split."""

    def change(name, **numbers):
        published(name, **{"classes": 3, "counts": dict.fromkeys(("train", "val", "test"), 6), **numbers})

    return change
