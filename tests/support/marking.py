"""Parameters of which only some are part of the quick suite."""

import pytest


def slow_but(quick, cases):
    """Return the cases as parameters, all marked slow but those in ``quick``."""
    assert all(one in cases for one in quick), f"{quick} are not all among the cases"
    return [case if case in quick else _slow(case) for case in cases]


def _slow(case):
    return pytest.param(*(case if isinstance(case, tuple) else (case,)), marks=pytest.mark.slow)
