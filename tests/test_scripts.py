"""The scripts that a person runs, in small."""

import ast
import importlib.util
import pathlib

import pytest

ROOT = pathlib.Path(__file__).parent.parent


def script(name):
    spec = importlib.util.spec_from_file_location(name, ROOT / "scripts" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.usefixtures("no_shape_checks")
def test_soak(tmp_path):
    soak = script("soak")
    for name, job in soak.jobs(tmp_path, n_views=8, steps=4).items():
        for i in range(20):
            job(i)
        grown = soak.growth(job, 100)
        assert not soak.too_much(grown, bar_mb=20), (name, grown)


def test_that_a_leak_would_be_noticed():
    soak = script("soak")
    kept = []
    assert soak.too_much(soak.growth(lambda i: kept.append(bytearray(2**21)), 40))
    assert soak.too_much(soak.growth(lambda i: kept.append(open(__file__)), 10))  # noqa: SIM115
    for file in kept[-10:]:
        file.close()


MUTATE = script("mutate")


@pytest.mark.parametrize("mutant", MUTATE.MUTANTS, ids=str)
def test_mutants_are_of_the_code_as_it_is(mutant):
    text = (ROOT / "src/tpt_lib" / mutant.file).read_text()
    assert text.count(mutant.old) == 1, "scripts/mutate.py names code that is not there, or not once"
    assert ast.dump(ast.parse(text.replace(mutant.old, mutant.new))) != ast.dump(ast.parse(text))
    assert (ROOT / "tests" / mutant.tests.split()[0]).is_file()


def test_there_are_enough_mutants():
    assert len(set(MUTATE.MUTANTS)) >= 30
