"""McNemar's test and Wilson's interval against scipy's."""

import pytest

import tpt_lib
from tpt_lib.evaluation.significance import paired_counts, wilson


def test_mcnemar_is_the_exact_binomial_test():
    binomtest = pytest.importorskip("scipy.stats").binomtest
    for a, b in [(0, 0), (1, 0), (3, 3), (10, 2), (2, 10), (40, 61), (0, 30)]:
        expected = binomtest(a, a + b).pvalue if a + b else 1.0
        assert tpt_lib.evaluation.mcnemar(a, b) == pytest.approx(expected, rel=1e-9)
    assert 0 <= tpt_lib.evaluation.mcnemar(20000, 21000) < 1e-5, "many samples are no trouble"
    with pytest.raises(ValueError, match="negative, but got -1"):
        tpt_lib.evaluation.mcnemar(-1, 2)


def test_pairs_are_the_samples_that_both_have():
    a = {0: True, 1: True, 2: False, 3: False, 4: True}
    b = {0: True, 1: False, 2: True, 3: False, 9: True}
    expected = {"n": 4, "both": 1, "only_a": 1, "only_b": 1, "neither": 1, "p": 1.0}
    assert paired_counts(a, b) == expected
    skewed = paired_counts(dict.fromkeys(range(8), True), dict.fromkeys(range(8), False))
    assert (skewed["only_a"], skewed["only_b"], skewed["p"]) == (8, 0, 2 / 2**8)
    assert paired_counts(a, {})["n"] == 0


def test_wilsons_interval():
    binomtest = pytest.importorskip("scipy.stats").binomtest
    for right, n in [(81, 263), (15, 148), (0, 20), (1, 29), (29, 29), (1, 1)]:
        expected = binomtest(right, n).proportion_ci(0.95, method="wilson")
        assert wilson(right / n, n) == pytest.approx(tuple(expected), abs=1e-4)


def test_wilsons_interval_is_within_0_and_1():
    ends = [end for n in range(1, 200) for right in (0, n) for end in wilson(right / n, n)]
    assert min(ends) >= 0
    assert max(ends) <= 1
