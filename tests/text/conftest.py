import pytest

import tpt_lib


@pytest.fixture(autouse=True)
def many_tokens(monkeypatch):
    """Attend in groups, as for many tokens; tests of few tokens say so."""
    monkeypatch.setattr(tpt_lib.text.packing, "FEW", 0)
