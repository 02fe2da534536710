"""The scripts that a person runs, in small."""

import importlib.util
import pathlib
import re

import pytest

ROOT = pathlib.Path(__file__).parents[2]


def script(name):
    spec = importlib.util.spec_from_file_location(name, ROOT / "scripts" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.usefixtures("no_shape_checks")
def test_soak(tmp_path):
    soak = script("soak")
    for name, job in soak.jobs(tmp_path, n_views=4, steps=4).items():
        grown = soak.growth(job, 30)
        assert not soak.too_much(grown, bar_mb=30), (name, grown)


def test_that_a_leak_would_be_noticed():
    soak = script("soak")
    kept = []
    assert soak.too_much(soak.growth(lambda i: kept.append(bytearray(2**21)), 40))
    assert soak.too_much(soak.growth(lambda i: kept.append(open(__file__)), 10))  # noqa: SIM115
    for file in kept[-10:]:
        file.close()


def measurements():
    """What the benchmarks write, with made-up numbers."""
    bench = script("bench")
    two = [1.0, 3.0]
    point = {"times": two, "floor": [0.5, 1.0], "first": 2.0, "memory_mb": 10.0}
    curves = {name: {"1": point, "2": point} for name in bench.LABELS}
    views = {"times": {"PIL loop": two, "tpt_lib": [0.5, 0.5]}, "memory_mb": 40.0}
    memory = {"classes": 200, "chunk": None, "loaded_gb": 1.0, "peak_gb": 1.5}
    return bench, {
        "machine": bench.machine(), "quick": False, "seconds": {"tpt": 600.0},
        "tpt": {"model": "ViT-B-16", "times": {"views alone": [1.0, 2.0], "tpt_lib, K=200": two}, "first": {"200": 4.0},
                "beside": {"zero-shot": 0.1}, "peak_gb": 3.0, "loaded_gb": 1.0},
        "growth": {"model": "ViT-S-32-alt", "base": {"classes": 100, "images": 1}, "curves": curves},
        "text": {"classes": 50, "difference": 1e-7, "times": {"plain, 77 tokens": two, "tpt_lib": [0.1, 0.1]},
                 "growth": [{"classes": 50, "tokens": 200, "times": two}], "memory": [memory, memory | {"chunk": 100}]},
        "bongard": {"times": {"plain loop": two, "one problem": [0.5, 0.5]}, "memory_gb": 0.1},
        "views": {"crop": views, "augmix": views}, "evaluate": {"times": {"bare loop": two, "evaluate": two}},
        "imports": {"times": {"import tpt_lib": two}},
    }  # fmt: skip


def test_the_page_of_benchmarks():
    import platform

    bench, found = measurements()
    text = bench.page(found)
    assert "| tpt_lib, K=200 | 2 (1 to 3) | 1.25 (1 to 1.5) |" in text
    assert "| one problem | 0.5 (0.5 to 0.5) | 4 (2 to 6) |" in text
    assert "where not varied, 100 classes, 1 image." in text
    assert "| 1 | 2 (1 to 3) | 0.75 (0.5 to 1) | 2.5 (2 to 3) | 10 |" in text
    assert platform.node() not in text or not platform.node()
    drawn = bench.figures(found)
    assert all(data.startswith(b"\x89PNG") for data in drawn.values())
    assert set(re.findall(r"\((benchmarks-\w+\.png)\)", text)) == set(drawn)
    assert "these numbers mean nothing" in bench.page(found | {"quick": True})


def test_every_benchmark_is_run():
    bench = script("bench")
    assert set(bench.RUNS) == {path.stem for path in (ROOT / "benchmarks").glob("*.py")}
