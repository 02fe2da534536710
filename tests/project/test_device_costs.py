"""Launches, synchronizations and bytes on the simulated accelerator stay under their bars. They are exact, not timings."""

import functools

import pytest
from support.device_costs import (
    AUGMIX,
    BARS,
    CROPS,
    EIGHT,
    ENCODE,
    EVALUATE,
    LAYERS,
    MANY_CLASSES,
    ONE,
    WORKER,
    calls_of,
    launches_per_image,
    narrow_module,
)

import tpt_lib

LONG = (EVALUATE, WORKER, MANY_CLASSES, EIGHT, CROPS, AUGMIX)


@functools.cache
def calls():
    return calls_of(narrow_module())


@functools.cache
def cost_of(call):
    return calls()[call]()


def expected(call, what):
    return pytest.param(call, what, marks=[pytest.mark.slow] if call in LONG else [])


@pytest.mark.usefixtures("simulated")
@pytest.mark.parametrize(("call", "what"), [expected(*key) for key in BARS])
def test_a_count_keeps_its_bar(call, what):
    cost = cost_of(call)
    found = getattr(cost, what)
    assert found <= BARS[call, what], f"{call}: {found} {what}; waits {cost.waits}; copies to the device {cost.uploads}"


@pytest.mark.usefixtures("simulated")
def test_there_is_something_to_count():
    """A call that no longer reaches the device would keep every bar."""
    assert cost_of(ONE).launches > 10 * LAYERS
    assert cost_of(ENCODE).launches > 5 * LAYERS


@pytest.mark.slow
@pytest.mark.usefixtures("simulated")
def test_the_launches_of_a_method_are_those_of_its_second_image():
    seen = []

    def method(model, prompts):
        return lambda features: seen.append(features * features.new_ones(()) + len(seen))

    def tpt(model, prompts):
        return lambda features: tpt_lib.tpt_predict(model, prompts, features)

    assert launches_per_image({"method": method, "tpt": tpt}) == {"method": 3, "tpt": cost_of(ONE).launches}
    assert len(seen) == 2


@pytest.mark.slow
@pytest.mark.usefixtures("simulated")
def test_a_run_is_counted():
    """So would a run whose images are not seen."""
    assert cost_of(EVALUATE).launches > 10 * LAYERS
    assert cost_of(EVALUATE).bytes_in > 3 * 375 * 500 * 0.9
    assert cost_of(WORKER).bytes_from_worker > 3 * 375 * 500
