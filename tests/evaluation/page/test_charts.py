"""The charts of a page, by the numbers in their SVG."""

import itertools
import math
import re

import pytest
import torch

from tpt_lib.evaluation.page.charts import accuracy_chart, cost_chart, reliability_chart, stream_chart
from tpt_lib.evaluation.page.svg import WIDTH, log_ticks, scale, ticks


def numbers(svg, kind, name):
    """An attribute of the elements of a class."""
    elements = re.findall(rf'<\w+[^>]*class="{kind}"[^>]*>', svg)
    return [float(re.search(rf' {name}="([^"]*)"', one)[1]) for one in elements]


def line(svg, kind):
    (points,) = re.findall(rf'points="([^"]*)" class="{kind}"', svg)
    return [tuple(map(float, point.split(","))) for point in points.split()]


def labels(svg):
    """The numbers on the axes, each with its ends, as wide as a wide font draws them."""
    found = {}
    for x, anchor, words in re.findall(r'<text x="([\d.]+)" y="[\d.]+" text-anchor="(middle|end)">(-?[\d.]+)<', svg):
        wide = 7.6 * len(words) - 3.8 * words.count(".")
        start = float(x) - wide / (1 if anchor == "end" else 2)
        found[words] = start, start + wide
    return found


def result(method, top1, **more):
    return {"method": method, "top1": top1, "n": 100, "paper": None, "seconds": 0.01, **more}


def test_accuracies_have_intervals_and_the_papers_number():
    svg = accuracy_chart([result("a", 50.0, paper=45.0), result("b", 80.0)])
    assert "a 50.0 (40.4 to 59.6), b 80.0 (71.1 to 86.7)" in svg
    assert f">{'a' * 25}…<" in accuracy_chart([result("a" * 100, 50.0)])
    x = scale(40.38, 86.66, 20, 300)
    assert numbers(svg, "point", "cx") == pytest.approx([x(50), x(80)], abs=0.2)
    assert numbers(svg, "paper", "x") == pytest.approx([x(45) - 1.5], abs=0.2)
    assert [x for x, _ in re.findall(r'points="([\d.]+),[\d.]+ ([\d.]+),', svg)] == ["20.0", f"{x(71.11):.1f}"]


def test_bins_of_reliability():
    confidence, correct = torch.tensor([0.9, 0.9, 0.3]), torch.tensor([True, False, True])
    svg = reliability_chart(confidence, correct)
    assert [numbers(svg, kind, "height") for kind in ("bar", "over", "under")] == [
        pytest.approx([0.3 * 172, 0.5 * 172], abs=0.1),
        pytest.approx([0.4 * 172], abs=0.1),
        pytest.approx([0.7 * 172], abs=0.1),
    ]
    assert [height for height in numbers(svg, "count", "height") if height] == [12, 24]
    assert f"ECE {100 * (2 / 3 * 0.4 + 1 / 3 * 0.7):.1f}%" in svg


def test_cost_is_logarithmic_and_names_do_not_overlap():
    rows = [
        result("one", 60.0, seconds=0.001),
        result("two", 60.0, seconds=0.01),
        result("three", 60.1, seconds=0.0101),
    ]
    svg = cost_chart(rows, ["two", "one", "three"])
    first, second, _ = (float(x) for x in re.findall(r'<circle cx="([\d.]+)"', svg))
    assert (first, second) == pytest.approx((36 + 264 * 0.2 / 1.404, 36 + 264 * 1.2 / 1.404), abs=0.3)
    assert re.findall(r'class="(m\d)"', svg) == ["m1", "m0", "m2"]
    heights = [float(y) for y in re.findall(r'y="([\d.]+)"[^>]*>(?:two|three)<', svg)]
    assert abs(heights[0] - heights[1]) >= 10
    assert "one 60.0 at 1 ms, two 60.0 at 10 ms, three 60.1 at 10.1 ms" in svg
    assert "ms" in cost_chart([result("one", 60.0, seconds=0.0)], ["one"])


@pytest.mark.parametrize("top1", [100.0, 0.0])
def test_names_stay_within_the_axes(top1):
    names = [f"method {i}" for i in range(8)]
    rows = [result(name, top1, seconds=0.03 + 0.001 * i) for i, name in enumerate(names)] + [result("other", 50.0)]
    heights = [float(y) - 3 for y in re.findall(r'y="([-\d.]+)"[^>]*>method \d<', cost_chart(rows, [*names, "other"]))]
    assert len(set(heights)) >= 7
    assert all(8 <= height <= 180 for height in heights)


def test_a_stream_has_running_means():
    svg = stream_chart({"a": [False] * 5 + [True] * 5}, ["b", "a"])
    y = scale(-1, 101, 180, 8)
    recent, so_far = line(svg, "line m1"), line(svg, "line m1 guide")
    assert [height for _, height in recent] == pytest.approx(
        [y(v) for v in (0, 0, 0, 0, 50, 100, 100, 100, 100)], abs=0.1
    )
    assert so_far[-1] == pytest.approx((300, y(50)), abs=0.1)
    assert "at its end: a 50.0" in svg
    long = stream_chart({"a": [True] * 50_000}, ["a"])
    assert len(line(long, "line m0")) == 200


@pytest.mark.parametrize(
    ("draw", "widest"),
    [
        (lambda: accuracy_chart([result("a", 100.0), result("b", 50.0)]), "100"),
        (lambda: accuracy_chart([result("a", 97.5, n=10**5)]), "97.5"),
        (lambda: reliability_chart(torch.tensor([0.9]), torch.tensor([True])), "0.8"),
        (lambda: cost_chart([result("a", 99.5, seconds=6.31), result("b", 1.0, seconds=0.1)], ["a", "b"]), "10000"),
        (lambda: stream_chart({"a": [True] * 40_000}, ["a"]), "40000"),
    ],
    ids=["accuracy", "narrow", "reliability", "cost", "stream"],
)
def test_the_numbers_on_the_axes_are_not_cut(draw, widest):
    found = labels(draw())
    assert widest in found
    assert {words: ends for words, ends in found.items() if ends[0] < 0 or ends[1] > WIDTH} == {}


def test_no_accuracy_is_below_0_or_above_100():
    for svg in (
        cost_chart([result("a", 100.0), result("b", 0.0)], ["a", "b"]),
        stream_chart({"a": [True] * 9}, ["a"]),
        stream_chart({"a": [False] * 9}, ["a"]),
    ):
        along = [float(words) for words in re.findall(r'text-anchor="end">(-?[\d.]+)<', svg)]
        assert along
        assert 0 <= min(along) <= max(along) <= 100


def test_a_logarithmic_axis_has_a_few_round_ticks():
    for low, decades in itertools.product([0.007 * i - 3 for i in range(900)], [0.4, 0.9, 1.5, 4.0]):
        found = log_ticks(low, low + decades)
        assert 2 <= len(found) <= 6
        assert all(low <= power <= low + decades for power in found)
        assert [10**power for power in found] == pytest.approx([float(words) for words in found.values()])


def test_the_axis_of_cost_has_several_ticks():
    svg = cost_chart([result("a", 60.0, seconds=0.012), result("b", 70.0, seconds=0.045)], ["a", "b"])
    at = {words: float(x) for x, words in re.findall(r'<text x="([\d.]+)" y="194" text-anchor="middle">([\d.]+)<', svg)}
    assert list(at) == ["10", "20", "50"]
    x = scale(math.log10(12) - 0.2, math.log10(45) + 0.2, 36, 300)
    assert list(at.values()) == pytest.approx([x(1), x(math.log10(20)), x(math.log10(50))], abs=0.1)


@pytest.mark.parametrize(("low", "high"), [(0.0, 1.0), (59.3, 61.2), (3.0, 3.0), (-1.0, 101.0), (100.0, 50_000.0)])
def test_ticks_are_few_and_within(low, high):
    found = ticks(low, high)
    assert len(found) <= 7
    assert all(low <= one <= high for one in found)
    assert found or low == high
