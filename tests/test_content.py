"""Descriptions by content: equal in every process for equal content, other for other content, never an address."""

import copy
import enum
import functools
import operator
import re
import subprocess
import sys
import threading
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from support.noise_runs import environment

import tpt_lib
from tpt_lib.content import ContentError, describe, digest
from tpt_lib.objectives import select_confident


class Color(enum.Enum):
    RED, BLUE = 1, 2


@dataclass
class Setting:
    value: object


class Scaled:
    """A callable object with a state."""

    def __init__(self, factor):
        self.factor = factor

    def __call__(self, x):
        return self.factor * x

    def half(self, x):
        return self.factor * x / 2


class Described(Scaled):
    def describe(self):
        return "by hand"


def power(x, k=2):
    return x**k


def closure(inside, k=1):
    def inner(x):
        return x * inside + k

    return inner


BIG = torch.zeros(2000)
OTHER = BIG.clone()
OTHER[1000] = 1  # where a tensor's repr is abridged

# pairs that differ in content and would not in a repr or a name
PAIRS = {
    "tensors": (BIG, OTHER),
    "dtypes": (torch.zeros(2), torch.zeros(2).half()),
    "arrays": (np.zeros(2000), OTHER.numpy()),
    "shapes": (np.zeros((2, 3)), np.zeros((3, 2))),
    "arrays of objects": (np.array([1, "a"], dtype=object), np.array([1, "b"], dtype=object)),
    "positional arguments": (functools.partial(power, 2), functools.partial(power, 3)),
    "keywords": (functools.partial(power, k=2), functools.partial(power, k=3)),
    "tensors in keywords": (functools.partial(power, k=BIG), functools.partial(power, k=OTHER)),
    "nested partials": (
        functools.partial(power, k=functools.partial(power, 1)),
        functools.partial(power, k=functools.partial(power, 2)),
    ),
    "states of objects": (Scaled(1), Scaled(2)),
    "tensors in states": (Scaled(BIG), Scaled(OTHER)),
    "bound methods": (Scaled(1).half, Scaled(2).half),
    "methods of one object": (Scaled(1).half, Scaled(1).__call__),
    "closures": (closure(1), closure(2)),
    "defaults": (closure(1, k=1), closure(1, k=2)),
    "lambdas": (lambda x: x + 1, lambda x: x + 2),
    "defaults of lambdas": (lambda x, k=1: x + k, lambda x, k=2: x + k),
    "names of arguments": (lambda *, a, b: a - b, lambda *, b, a: b - a),
    "containers": ([1, {"a": BIG}], [1, {"a": OTHER}]),
    "long lists": (list(range(1000)), [*range(999), 0]),
    "sets": ({"a", "b"}, {"a", "c"}),
    "modules": (torch.nn.Linear(2, 2), torch.nn.Linear(2, 2)),
    "settings of modules": (torch.nn.Dropout(0.1), torch.nn.Dropout(0.2)),
    "dataclasses": (Setting(1), Setting(2)),
    "enums": (Color.RED, Color.BLUE),
    "built-in objects": (operator.attrgetter("a"), operator.attrgetter("b")),
    "patterns": (re.compile("a"), re.compile("b")),
    "classes": (torch.optim.SGD, torch.optim.AdamW),
    "built-in functions": (torch.sigmoid, torch.tanh),
    "descriptors": (torch.Tensor.mean, torch.Tensor.sum),
    "text and numbers": ("1", 1),
    "cached functions": (functools.cache(closure(1)), functools.cache(closure(2))),
}


@pytest.mark.parametrize("kind", PAIRS)
def test_other_content_has_another_description(kind):
    one, other = PAIRS[kind]
    assert describe(one) != describe(other)
    assert not re.search("0x[0-9a-f]{6}", describe(one))
    assert "\n" not in describe(one)


@pytest.mark.parametrize("kind", PAIRS)
def test_a_copy_has_the_same_description(kind):
    for value in PAIRS[kind]:
        assert describe(copy.deepcopy(value)) == describe(value)


def test_two_functions_of_one_text_are_one():
    assert describe(closure(BIG)) == describe(closure(BIG.clone()))
    assert len({describe(each) for each in [lambda x: x + 1 for _ in range(2)]}) == 1


def module_of(source):
    space = {"__name__": "user_code"}
    exec(source, space)
    return space


def test_an_edited_function_is_another_one_and_comments_are_no_edit():
    plain = describe(module_of("def f(x):\n    return x + 1")["f"])
    noted = describe(module_of("def f(x):\n    'What it does.'\n\n    # why\n    return x + 1")["f"])
    edited = describe(module_of("def f(x):\n    return x + 2")["f"])
    assert plain == noted != edited
    assert plain.startswith("user_code.f#")


@pytest.mark.parametrize("helper", ["def g(x): return x + {}", "class g:\n    def __new__(cls, x): return x + {}"])
def test_what_a_function_calls_in_its_module_is_part_of_it(helper):
    one, same, other = (describe(module_of(f"{helper.format(n)}\ndef f(x): return g(x)")["f"]) for n in (1, 1, 2))
    assert one == same != other


def test_constants_of_the_module_are_part_of_a_function():
    one, other = (describe(module_of(f"K = {k}\ndef f(x): return [i * K for i in x]")["f"]) for k in (1, 2))
    assert one != other


def test_functions_that_call_each_other_and_themselves():
    source = "def f(x): return g(x)\ndef g(x): return f(x) + {}"
    one, other = (describe(module_of(source.format(k))["f"]) for k in (1, 2))
    assert one != other
    loop = [1]
    loop.append(loop)
    assert describe(loop) == "[1, …]"


def test_the_code_of_a_class_is_part_of_its_objects():
    source = "class C:\n    k = {}\n    def __call__(self, x): return x + {}"
    texts = {describe(module_of(source.format(*numbers))["C"]()) for numbers in [(1, 1), (1, 2), (2, 1), (1, 1)]}
    assert len(texts) == 3


def test_installed_functions_are_known_by_name():
    assert describe(select_confident) == "tpt_lib.objectives.select_confident"
    assert describe(torch.nn.functional.relu) == "torch.nn.functional.relu"
    assert describe(torch.optim.AdamW) == "torch.optim.adamw.AdamW"
    assert describe(functools.partial(tpt_lib.tpt_predict, steps=2)) == "tpt_lib.methods.tpt.tpt_predict(steps=2)"


def test_describe_of_ones_own_replaces_the_state():
    assert describe(Described(1)) == describe(Described(2)) == f"{__name__}.Described(by hand)"


def test_what_has_no_content_is_refused():
    for value in ((i for i in range(3)), threading.Lock(), Scaled(threading.Lock()), closure(i for i in range(3))):
        with pytest.raises(ContentError, match="cannot be described by its content"):
            describe(value)


CODE = """
import functools, torch
import test_content as t
from tpt_lib.content import describe
print("\\n".join(describe(value) for kind, pair in t.PAIRS.items() if kind != "modules" for value in pair))
"""


@pytest.mark.slow
def test_another_process_says_the_same():
    def said(seed):
        env = {**environment(), "PYTHONHASHSEED": seed}
        return subprocess.run([sys.executable, "-c", CODE], env=env, capture_output=True, text=True, check=True).stdout

    assert said("1") == said("2")
    assert len(said("1").splitlines()) == 2 * len(PAIRS) - 2


def test_digest_sees_values_dtypes_and_shapes():
    tensors = [
        torch.zeros(4),
        torch.ones(4),
        torch.zeros(2, 2),
        torch.zeros(4, dtype=torch.int32),
        torch.zeros(2).double(),
    ]
    assert len({digest([tensor]) for tensor in tensors}) == len(tensors)
    assert digest(iter(tensors)) == digest(tensors)
    assert digest(["a", "bc"]) != digest(["ab", "c"])
