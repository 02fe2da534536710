"""The mutants of ``scripts/mutate.py`` on small sources, and the script itself on a toy project."""

import ast
import importlib.util
import os
import pathlib
import shutil
import subprocess
import sys
import textwrap

import pytest

ROOT = pathlib.Path(__file__).parents[2]
SPEC = importlib.util.spec_from_file_location("mutate", ROOT / "scripts/mutate.py")
mutate = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(mutate)


def mutants(body):
    """The mutants of the body of a function, as operators and bodies."""
    tree = ast.parse(f"import torch\ndef f(a, b):\n{textwrap.indent(body, '    ')}")
    before = ast.dump(tree)
    found = []
    for mutant in mutate.mutants("m", tree):
        _, _, changed = mutate.mutated(tree, mutant).partition("def f(a, b):\n")
        found.append((mutant.name.split()[1].split("#")[0], textwrap.dedent(changed)))
    assert ast.dump(tree) == before
    return found


@pytest.mark.parametrize(
    ("operator", "body", "expected"),
    [
        ("arithmetic", "return a + b", ["return a - b"]),
        ("arithmetic", "return a / b", ["return a * b"]),
        ("arithmetic", "a -= b", ["a += b"]),
        ("comparison", "return 0 < a <= b", ["return 0 <= a <= b", "return 0 < a < b"]),
        ("comparison", "return a == b", ["return a != b"]),
        ("comparison", "return a is not None", ["return a is None"]),
        ("logic", "return a and b", ["return a or b"]),
        ("logic", "a &= b", ["a |= b"]),
        ("negation", "return not a", ["return a"]),
        ("negation", "return ~a", ["return a"]),
        ("condition", "if a < b:\n    a()", ["if not a < b:\n    a()"]),
        ("condition", "while a:\n    a()", ["while not a:\n    a()"]),
        ("condition", "return a if b else 0", ["return a if not b else 0"]),
        ("condition", "if not a:\n    a()", []),
        ("condition", "if a == b:\n    a()", []),
        ("number", "return 3, 0.1, 1e-3, 0.0, True", [
            "return (4, 0.1, 0.001, 0.0, True)", "return (3, 0.2, 0.001, 0.0, True)",
            "return (3, 0.1, 0.002, 0.0, True)", "return (3, 0.1, 0.001, 1.0, True)",
        ]),
        ("minus", "return -a", ["return a"]),
        ("dim", "return a.sum(dim=-1)", ["return a.sum(dim=-2)"]),
        ("dim", "return a.sum(axis=-2)", ["return a.sum(axis=-1)"]),
        ("number", "return a.sum(dim=-1)", []),
        ("keyword", "return a(dim=0, keep=b)", ["return a(keep=b)", "return a(dim=0)"]),
        ("keyword", "return zip(a, b, strict=True)", []),
        ("chain", "return a.detach().float()", ["return a.detach()", "return a.float()"]),
        ("chain", "return torch.nn.functional.relu(a)", []),
        ("chain", "a.append(b)", []),
        ("chain", "return a.to(b.device)", []),
        ("chain", "return a.to(b.device, b.dtype)", ["return a"]),
        ("unwrap", "return torch.exp(a)", ["return a"]),
        ("unwrap", "b = torch.softmax(a, dim=-1)", ["b = a"]),
        ("unwrap", "return torch.add(a, b)", []),
        ("delete", "a.append(b)", ["pass"]),
        ("delete", "a += b", ["pass"]),
    ],
)  # fmt: skip
def test_operators(operator, body, expected):
    assert [changed for name, changed in mutants(body) if name == operator] == expected


@pytest.mark.parametrize(
    "body",
    [
        '"""A docstring: 1 + 1."""',
        "raise ValueError(f'{a + 1}', -b)",
        "assert a is not None and b > 1",
        "return f'{a + 1} of {len(b)}'",
        "logging.info(a + 1)",
        "a: Float[Tensor, 1 + 1] = b",
        "FEW = 64",
        "return a if len(b) <= FEW else b",
        "if TYPE_CHECKING:\n    a = b + 1",
        "def g(a: 1 + 1) -> -1: ...",
        "@b(1, eq=-1)\ndef g(): ...",
        "import math",
    ],
)
def test_what_is_left_alone(body):
    assert mutants(body) == []


def test_a_warning_is_deleted_but_not_changed():
    assert mutants("warnings.warn(a + '.', b=-1)") == [("delete", "pass")]


def test_outside_of_functions_only_numbers_and_statements_are_mutated():
    source = "__all__ = ['A'][-1:]\nN = 10\nAlias = list[int] | None\nhook(a=1)\nclass A:\n    x: int = -1\n    y: str = f(x=N)"
    assert [mutant.name for mutant in mutate.mutants("m", ast.parse(source))] == [
        "m:<module> number#1", "m:<module> number#2", "m:<module> delete#1", "m:A number#1"
    ]  # fmt: skip


PLAIN = """
def f(a, b=0.1):
    return a.exp().sum(dim=-1) - b

class C:
    def g(self, a):
        return not a or -a > 1
"""
EDITED = '''
"""A module."""
import math  # for math

def before(x):
    return x + 1 - 2

def f(a: int, b: float = 0.1) -> float:
    """A docstring."""
    # a comment

    def inner(x):
        return -x * 2

    return (a.exp().sum(
        dim=-1)) - b  # another

class C:
    """A class."""

    def before(self, a):
        return a.float()

    def g(self, a):
        return (not a) or ((-a) > 1)
'''


def test_names_and_the_sample_do_not_depend_on_the_rest_of_the_file():
    def chosen(source, each):
        found = mutate.sample(mutate.mutants("m", ast.parse(source)), count=99, each=each, seed=0)
        pairs = [(mutant.name, ast.unparse(mutant.new)) for mutant in found]
        return [pair for pair in pairs if pair[0].split()[0] in ("m:f", "m:C.g")]

    assert len(chosen(PLAIN, 99)) == 11
    assert len(chosen(PLAIN, 2)) == 4
    for each in (2, 99):
        assert chosen(PLAIN, each) == chosen(EDITED, each)


def test_the_sample_has_a_budget_and_a_seed():
    found = mutate.mutants("m", ast.parse(EDITED))
    assert len({mutant.name.split()[0] for mutant in found}) == 5
    samples = [mutate.sample(found, count=4, each=1, seed=seed) for seed in (0, 0, 1)]
    names = [[mutant.name for mutant in one] for one in samples]
    assert names[0] == names[1] != names[2]
    assert len({name.split()[0] for name in names[0]}) == len(names[0]) == 4
    every = mutate.sample(found, count=4, each=2, seed=0)
    assert {mutant.name.split()[0] for mutant in every} == {name.split()[0] for name in names[0]}


def test_operators_differ_where_they_can():
    found = mutate.mutants("m", ast.parse("def f(a):\n    return [1, 2, 3, 4, 5, 6, 7, 8, 9, -a]"))
    for seed in range(5):
        kinds = {mutant.name.split()[1] for mutant in mutate.sample(found, count=9, each=2, seed=seed)}
        assert "minus#1" in kinds


def test_every_target_exists():
    found = mutate.targets()
    assert {"objectives", "tuning.tune", "views.crops", "methods.bongard", "evaluation.metrics"} <= found.keys()
    assert not any(module.endswith("__init__") for module in found)


@pytest.fixture
def tree(tmp_path, monkeypatch):
    """A tree with modules a, b.c and b.d, and tests of a and b.c."""
    for name in ("src/tpt_lib/a.py", "src/tpt_lib/b/__init__.py", "src/tpt_lib/b/c.py", "src/tpt_lib/b/d.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / "tests/b").mkdir(parents=True)
    (tmp_path / "tests/test_a.py").touch()
    (tmp_path / "tests/b/test_c.py").touch()
    monkeypatch.setattr(mutate, "ROOT", tmp_path)
    monkeypatch.setattr(mutate, "PACKAGE", tmp_path / "src/tpt_lib")


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"a": ""}, {"a": ("tests/test_a.py",)}),
        (
            {"b.*": "", "b.d": "test_a.py b/test_c.py"},
            {"b.d": ("tests/test_a.py", "tests/b/test_c.py"), "b.c": ("tests/b/test_c.py",)},
        ),
    ],
)
def test_the_tests_of_a_target_are_its_own_or_those_named(tree, monkeypatch, given, expected):
    monkeypatch.setattr(mutate, "TARGETS", given)
    assert mutate.targets() == expected


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"b.e": ""}, "TARGETS names 'b.e', but there is no such module"),
        ({"e.*": ""}, "TARGETS names 'e.*', but there is no such module"),
        ({"b.*": ""}, "b.d: there is no tests/b/test_d.py"),
        ({"a": "test_a.py test_e.py"}, "a: there is no tests/test_e.py"),
    ],
)
def test_a_target_that_does_not_exist_is_an_error(tree, monkeypatch, given, message):
    monkeypatch.setattr(mutate, "TARGETS", given)
    with pytest.raises(SystemExit, match=message.replace("*", r"\*")):
        mutate.targets()


@pytest.mark.slow
def test_the_script_on_a_toy_project(tmp_path):
    doubled = "def double(x):\n    return x + x\n"
    imports = "from tpt_lib.double import double\nfrom tpt_lib.positive import positive\n"
    for name, text in {
        "src/tpt_lib/__init__.py": "",
        "src/tpt_lib/double.py": doubled,
        "src/tpt_lib/half.py": "def half(x):\n    return x / 2\n",
        "src/tpt_lib/positive.py": "def positive(x):\n    return max(x, 0)\n",
        "tests/test_double.py": f"{imports}def test_double():\n    assert double(3) == 6",
        "tests/test_half.py": "def test_half():\n    pass",
        "tests/conformance/test_all.py": "from tpt_lib.half import half\ndef test_all():\n    assert half(8) == 4",
        "tests/test_positive.py": f"{imports}def test_positive():\n    assert positive(double(3)) == 6",
        "conftest.py": "",
        "pyproject.toml": "[tool.pytest.ini_options]\naddopts = '--import-mode=importlib'\nmarkers = ['slow']\n",
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    (tmp_path / "scripts").mkdir()
    shutil.copy(ROOT / "scripts/mutate.py", tmp_path / "scripts")
    table = "mutate.TARGETS, mutate.HEAVY, mutate.EQUIVALENT = {'double': '', 'half': '', 'positive': ''}, [], {}"
    command = [sys.executable, "-c", f"import mutate; {table}; mutate.main()"]
    env = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}  # quicker
    done = subprocess.run(command, cwd=tmp_path / "scripts", capture_output=True, text=True, env=env)
    lines = [" ".join(line.split()) for line in done.stdout.splitlines()]
    assert done.returncode == 1, done.stderr
    assert [line.split()[0] for line in lines[:4]] == ["caught", "caught", "caught", "SURVIVED"]
    assert [line.partition(" s ")[2] for line in lines[:4]] == [
        "double:double arithmetic#1",
        "half:half arithmetic#1",
        "half:half number#1",
        "positive:positive number#1",
    ]
    assert lines[4:] == ["- return max(x, 0)", "+ return max(x, 1)", "3 of 4 mutants caught, 75% (bar 90%)"]
    assert (tmp_path / "src/tpt_lib/double.py").read_text() == doubled
