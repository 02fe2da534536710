"""The scripts that a person runs, in small."""

import importlib
import json
import pathlib
import re
import subprocess
import sys

import pytest
from support.scripts import script

import tpt_lib

ROOT = pathlib.Path(__file__).parents[2]


@pytest.mark.usefixtures("no_shape_checks")
@pytest.mark.slow
def test_soak(tmp_path):
    soak = script("soak")
    for name, job in soak.jobs(tmp_path, n_views=4, steps=4).items():
        grown = soak.growth(job, 30)
        assert not soak.too_much(grown, bar_mb=30), (name, grown)


@pytest.mark.slow
def test_that_a_leak_would_be_noticed():
    soak = script("soak")
    kept = []
    assert soak.too_much(soak.growth(lambda i: kept.append(bytearray(2**21)), 40))
    assert soak.too_much(soak.growth(lambda i: kept.append(open(__file__)), 10))  # noqa: SIM115
    for file in kept[-10:]:
        file.close()


def measurements():
    """Return the script and what the benchmarks write, with made-up numbers."""
    bench = script("bench")
    two = [1.0, 3.0]
    point = {"times": two, "floor": [0.5, 1.0], "first": 2.0, "memory_mb": 10.0}
    curves = {name: {"1": point, "2": point} for name in bench.LABELS}
    views = {"times": {"PIL loop": two, "tpt_lib": [0.5, 0.5]}, "memory_mb": 40.0}
    memory = {"classes": 200, "chunk": None, "loaded_gb": 1.0, "peak_gb": 1.5}
    return bench, {
        "machine": bench.machine(), "quick": False, "seconds": {"tpt": 600.0}, "where": {"tpt": "2026-01-02, a PC"},
        "tpt": {"model": "ViT-B-16", "times": {"views alone": [1.0, 2.0], "K=200": two},
                "over": {"K=200": [1.5, 1.1]}, "bars": {"K=200": 1.1}, "first": {"K=200": 4.0},
                "beside": {"zero-shot": 0.1}, "memory_gb": {"K=200": 2.0}},
        "growth": {"model": "ViT-S-32-alt", "base": {"classes": 100, "images": 1}, "curves": curves},
        "text": {"classes": 50, "difference": 1e-7, "times": {"plain, 77 tokens": two, "tpt_lib": [0.1, 0.1]},
                 "growth": [{"classes": 50, "tokens": 200, "times": two}], "memory": [memory, memory | {"chunk": 100}]},
        "methods": {"model": "ViT-B-16", "classes": 200, "stream": [100, 10_000], "bars": {"zero": 8.0, "tda": 20.0},
                    "features": {"times": {"class_logits": [0.001, 0.001], "zero": [0.002, 0.004]},
                                 "ratios": {"class_logits": [1.0, 1.0], "zero": [2.0, 4.0]}},
                    "context": {"times": {"tpt": two}, "ratios": {"tpt": [1.0, 1.0]}},
                    "steps": {"times": {"tda, 100 images": two}, "ratios": {"tda, 100 images": [9.0, 9.0]}}},
        "bongard": {"times": {"plain loop": two, "one problem": [0.5, 0.5]}, "memory_gb": 0.1},
        "views": {"crop": views, "augmix": views}, "evaluate": {"times": {"bare loop": two, "evaluate": two}},
        "store": {"model": "ViT-B-16", "classes": 200, "samples": 2048, "images": 8,
                  "tpt": {"from images": [10.0, 20.0], "from a store": two}, "rates": {"zero_shot": [3000.0, 5000.0]},
                  "reading": {"float16": {"memory map": two, "store.features": two}},
                  "filling": {"encoding": two, "encoding into a store": two},
                  "opening": {"samples": 10**6, "seconds": two, "megabytes": [20.0, 22.0]},
                  "bars": {"tpt": 0.1, "rates": {"zero_shot": 2000}, "reading": 1.2, "filling": 1.03,
                           "opening": {"seconds": 1.0, "megabytes": 200}}},
        "imports": {"times": {"import tpt_lib": two}},
        "launches": {
            "costs": {"63 crops": {"launches": 673.0, "synchronizations": 0, "bytes_in": 1164636.0, "bytes_from_worker": 0}},
            "bars": [{"call": "63 crops", "count": "launches", "bar": 80}],
        },
    }  # fmt: skip


def test_the_page_of_benchmarks():
    import platform

    bench, found = measurements()
    text = bench.page(found)
    assert "| K=200 | 2 (1-3) | 1.25 (1-1.5) |" in text
    assert "| K=200 | 1.3 (1.1-1.5) | 1.1 | 4.0 | 2.00 |" in text
    assert "(10 minutes): 2026-01-02, a PC; python" in text
    other = {"tpt": "2026-01-02, a PC", "store": "2026-01-03, a PC"}
    assert "tpt on 2026-01-02, a PC; store on 2026-01-03, a PC; python" in bench.page(found | {"where": other})
    assert "| one problem | 0.5 (0.5-0.5) | 4 (2-6) |" in text
    assert "| zero | 3 (2-4) | 3 (2-4) (bar 8) | class_logits |" in text
    assert "| tda, 100 images | 2e+03 (1e+03-3e+03) | 9 (9-9) (bar 20) | class_logits |" in text
    assert "after 100 images and after 10,000" in text
    assert "| 63 crops | 673 (bar 80) | 0 | 1,164,636 | 0 |" in text
    assert "| from a store | 2 (1-3) | 0.125 (0.1-0.15) |" in text
    assert "| zero_shot | 4,000 (3,000-5,000) | >= 2,000 |" in text
    assert "a store of 1,000,000 samples in a fresh process: 2 (1-3) s (bar 1.0) and 21 (20-22) MB (bar 200)." in text
    assert "Settings that are not varied: 100 classes, 1 image." in text
    assert "| 1 | 2 (1-3) | 0.75 (0.5-1) | 2.5 (2-3) | 10 |" in text
    assert platform.node() not in text or not platform.node()
    drawn = bench.figures(found)
    assert all(data.startswith(b"\x89PNG") for data in drawn.values())
    assert set(re.findall(r"\((benchmarks-\w+\.png)\)", text)) == set(drawn)
    assert "these numbers mean nothing" in bench.page(found | {"quick": True})


def test_the_tables_of_the_readme(monkeypatch, tmp_path):
    readme = script("readme")
    found, counted = measurements()[1], json.loads((ROOT / "docs/gpu.json").read_text())
    text = readme.speed_table(found, counted)
    assert "| TPT of one image over encoding its 64 views, ViT-B-16, K=200 | 1.30 |" in text
    assert "| memory over the loaded model | 2.0 GB (K=200) |" in text
    assert "| the text step next to prompts of 77 tokens, K=50 | 20 times faster |" in text
    assert "| TPT from stored features over TPT from the image | 0.13 |" in text
    launches = counted["costs"]["tpt_predict, K=200"]["launches"]
    assert f"| launches per image, `tpt_predict`, K=200 | {launches:,.0f}, and " in text
    assert text.count("(a model)") == 4
    methods = readme.methods_table()
    assert "| `tpt` | TPT | Shu et al., NeurIPS 2022 | one image |" in methods
    assert "| `tda` | TDA | Karmanov et al., CVPR 2024 | the stream |" in methods
    assert methods.count("\n") == 1 + len(tpt_lib.list_methods()) + len(tpt_lib.list_methods(online=True))
    monkeypatch.setattr("sys.argv", ["readme.py", "--check"])
    assert readme.main() == 0, "run python scripts/readme.py"
    monkeypatch.setattr(readme, "PAGE", tmp_path / "README.md")
    readme.PAGE.write_text("<!-- methods -->\nslow\n<!-- end -->\n<!-- speed -->\nquick\n<!-- end -->\n")
    assert readme.main() == 1


def test_every_benchmark_is_run():
    bench = script("bench")
    assert set(bench.RUNS) == {path.stem for path in (ROOT / "benchmarks").glob("*.py")} - {
        "cost_model",
        "gpu",
        "harness",
        "shortlist",  # scripts/shortlists.py runs it
    }


def test_rounds_are_interleaved():
    harness = script("harness", "benchmarks")
    calls = []
    measures = {"a": lambda: calls.append("a") or len(calls), "b": lambda: calls.append("b") or len(calls)}
    assert harness.rounds(measures, 3) == {"a": [1, 3, 5], "b": [2, 4, 6]}
    assert calls == ["a", "b"] * 3


def test_a_table_of_times(capsys):
    harness = script("harness", "benchmarks")
    times = {"plain": [2.0, 6.0, 4.0], "ours": [1.0, 2.0, 4.0]}
    harness.print_times(times, "ours", unit="x", digits=1)
    assert capsys.readouterr().out.splitlines()[0].split()[1:] == ["4.000", "s", "(2.000-6.000)", "2.0x", "(1.0-3.0)"]
    harness.print_times(times, "plain", inverse=True, note=" bar 2")
    assert "2.000  (1.000-3.000) bar 2" in capsys.readouterr().out.splitlines()[1]


def test_seconds_are_of_the_clock_that_is_given():
    harness = script("harness", "benchmarks")
    ticks = iter([10.0, 12.5])
    done = []
    assert harness.seconds(done.append, "called", clock=lambda: next(ticks)) == 2.5
    assert done == ["called"]


@pytest.mark.slow
def test_peak_memory_in_a_process_of_its_own():
    harness = script("harness", "benchmarks")
    code = f"""if True:
        import sys
        sys.path[0] = {str(ROOT / "benchmarks")!r}
        import harness
        before = harness.peak_gb()
        freed, untouched = bytearray(b"x") * 2**29, bytes(2**31)
        del freed
        print(harness.peak_gb() - before)
    """
    assert harness.in_own_process("-c", code) == pytest.approx(0.5, abs=0.1)


@pytest.fixture
def cost_model(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    return importlib.import_module("cost_model")


def test_the_cost_model_by_hand(cost_model):
    gpu = cost_model.Gpu("made up", peak=10e12, half_peak=40e12, bandwidth=2e9, launch=5e-6)
    work = cost_model.ImageWork(launches=1000, image_flops=2e12, text_flops=1e12, bytes_moved=1e6)
    assert cost_model.predicted_seconds(gpu, work) == pytest.approx(0.005 + 0.2 + 0.1 + 0.0005)
    assert cost_model.predicted_seconds(gpu, work, half=True) == pytest.approx(0.005 + 0.05 + 0.1 + 0.0005)


def test_the_work_of_an_image_is_what_was_counted(cost_model):
    calls = ("tpt_predict, K=200", "tpt_predict, K=1000", "tpt_predict, K=200, batch of 8", "63 crops", "encode_views")
    costs = {call: {"launches": 10**at, "bytes_in": 2 * 10**at} for at, call in enumerate(calls)}
    found = cost_model.works({"costs": costs, "flops": {"view": 3, "text": {"200": 5, "1000": 7}}})
    assert found["views and their features"] == cost_model.ImageWork(11000, 3 * 64, 0, 2000)
    assert found["TPT, K=200, batch of 8"] == cost_model.ImageWork(11100, 3 * 64, 5, 2200)
    assert found["TPT, K=200, one image"] == cost_model.ImageWork(11001, 3 * 64, 5, 2002)
    assert found["TPT, K=1000, one image"] == cost_model.ImageWork(11010, 3 * 64, 7, 2020)


def test_the_tables_of_the_page_on_gpus_are_those_of_the_counts():
    costs = script("costs")
    text, found = costs.PAGE.read_text(), json.loads(costs.COUNTS.read_text())
    assert costs.page(text, found) == text, "run python scripts/costs.py --tables"
    found["costs"]["63 crops"]["launches"] += 10**6
    assert costs.page(text, found) != text
    with pytest.raises(SystemExit, match="one place for the table of counts, but has 0"):
        costs.page("", found)


def test_the_table_of_shortlists_is_that_of_the_measurement():
    shortlist = script("shortlists")
    text, found = shortlist.PAGE.read_text(), json.loads(shortlist.NUMBERS.read_text())
    assert shortlist.page(text, found) == text, "run python scripts/shortlists.py --tables"
    found["drawings"][0]["same class"] = 0.123
    found["images"] = 77
    assert "12%" in shortlist.page(text, found)
    assert "77 images each" in shortlist.page(text, found)


def test_the_tables_of_methods_are_those_of_the_measurement():
    methods = script("methods")
    text, found = methods.PAGE.read_text(), json.loads(methods.NUMBERS.read_text())
    assert methods.page(found) == text, "run python scripts/methods.py --tables"
    found["methods"]["zero"] |= {
        "accuracy": [81.0, 82.0, 83.0], "gain": 2.5, "half": 2.0, "fixed": [7, 8, 9], "broken": [1, 2, 3],
        "p": [0.01, 0.5, 0.2], "ece": None, "seconds": [0.004, 0.002, 0.006], "memory": 3.4, "launches": 76,
        "machine": "another machine",
    }  # fmt: skip
    found["methods"]["tda"]["accuracy"] = [80.0, 81.0, 82.0, 83.0, 90.0]
    text = methods.page(found)
    assert "| ZERO | 82.0 ± 1.0 | +2.5 ± 2.0 | 8.0 / 2.0 | 0.2 (0.01-0.5) | - | 4 (2) | 76 | 3 | 69.3 | 62.4 |" in text
    assert "| TDA | 80.0 | 81.0 | 82.0 | 83.0 | 90.0 | 10.0 |" in text
    assert "; another machine" in text
    assert re.search(r"above 0 for [\w, -]*ZERO", text)
    assert "`python scripts/methods.py --views 8`" in methods.page(found | {"views": 8})


def test_a_method_without_numbers_has_an_empty_row():
    methods = script("methods")
    found = json.loads(methods.NUMBERS.read_text())
    for name in ("zero", "rlcf", "tda"):
        del found["methods"][name]
    text = methods.page(found)
    assert "| ZERO | - | - | - | - | - | - | - | - | 69.3 | 62.4 |" in text
    assert "\n- ZERO has not been measured yet: `python scripts/methods.py --only zero`." in text
    assert "\n- TDA has not been measured yet" in text
    assert "\n- RLCF has not been measured yet: `python scripts/methods.py --only rlcf`." in text
    assert "\n- MEMO on CLIP needs the views themselves" in text


def test_the_interval_of_a_gain_is_over_drawings():
    runs = script("method_runs")
    base = {seed: {0: True, 1: False, 2: False, 3: True} for seed in (0, 1)}
    own = {0: {0: True, 1: True, 2: True, 3: True}, 1: {0: True, 1: True, 2: False, 3: True}}
    gain, half = runs.gain_interval(base, own)  # of 0, 100, 50 and 0 points
    assert (gain, half) == (pytest.approx(37.5), pytest.approx(1.96 * (6875 / 3) ** 0.5 / 2))


def test_drawings_of_all_styles_have_the_same_names():
    data = script("method_runs").all_styles(4)
    assert data.labels == 3 * [0, 107, 215, 322]
    with pytest.raises(SystemExit, match="--drawings must be from 1 to 430, but got 431"):
        script("method_runs").all_styles(431)


@pytest.mark.slow
def test_methods_are_measured_on_drawings(tmp_path, monkeypatch):
    methods = script("methods")
    monkeypatch.setattr(methods, "PAGE", tmp_path / "methods.md")
    before = json.loads(methods.NUMBERS.read_text()) | {"drawings": 2, "views": 4}
    monkeypatch.setattr(methods, "NUMBERS", tmp_path / "methods.json")
    methods.NUMBERS.write_text(json.dumps(before))
    small = f"methods.py --only zero rlcf tda tent --drawings 2 --store {tmp_path / 'store'} --views"
    monkeypatch.setattr("sys.argv", [*small.split(), "5"])
    with pytest.raises(SystemExit, match=r"--only adds to methods\.json, which was measured with --views 4: pass that"):
        methods.main()
    monkeypatch.setattr("sys.argv", [*small.split(), "4"])
    assert methods.main() == 0
    after = json.loads(methods.NUMBERS.read_text())
    zero, tda, tent = (after["methods"].pop(name) for name in ("zero", "tda", "tent"))
    assert len(after["methods"].pop("rlcf")["accuracy"]) == 3
    kept = {name: own for name, own in before["methods"].items() if name not in ("zero", "rlcf", "tda", "tent")}
    assert after["methods"] == kept
    assert (tent["n"], len(tent["accuracy"]), len(tent["alone"]["noto-v1"]), len(tent["seconds"])) == (6, 5, 5, 5)
    assert (zero["n"], len(zero["accuracy"]), len(tda["accuracy"]), zero["ece"]) == (6, 3, 5, None)
    assert {style: len(own) for style, own in tda["alone"].items()} == dict.fromkeys(after["styles"], 5)
    orders = " | ".join(f"{value:.1f}" for value in tda["accuracy"])
    assert f"| TDA | {orders} | " in methods.PAGE.read_text()
    with pytest.raises(SystemExit, match="--only memo_clip: it needs views, which are not there"):
        script("method_runs").measure(tmp_path, drawings=2, views=4, only=["memo_clip"])


@pytest.mark.slow
def test_measured_next_to_predicted(tmp_path):
    small = "--device cpu --architecture ViT-S-32-alt --classes 3 --batch-size 2 --views 2 --pairs 1 --json found.json"
    command = [sys.executable, ROOT / "benchmarks/gpu.py", *small.split()]
    said = subprocess.run(command, cwd=tmp_path, check=True, capture_output=True, text=True).stdout
    times = json.loads((tmp_path / "found.json").read_text())["times"]
    assert list(times) == ["views and their features", "TPT, K=3, batch of 2"]
    (seconds,) = times["TPT, K=3, batch of 2"]
    assert f"| TPT, K=3, batch of 2 | {seconds:.3f}  ({seconds:.3f}-{seconds:.3f}) | - |" in said


@pytest.mark.usefixtures("cost_model")
def test_a_prediction_for_a_gpu_that_is_known():
    gpu = script("gpu", "benchmarks")
    known = gpu.known_gpu("NVIDIA GeForce RTX 4090")
    assert (known.name, gpu.known_gpu("Radeon")) == ("RTX 4090", None)
    work = gpu.works(json.loads(gpu.COUNTS.read_text()))["TPT, K=200, batch of 8"]
    table = gpu.table(["TPT, K=200, batch of 8"], {"TPT, K=200, batch of 8": [1.0, 3.0]}, known, half=True)
    predicted = gpu.predicted_seconds(known, work, half=True)
    assert table.splitlines()[-1] == f"| TPT, K=200, batch of 8 | 2.000  (1.000-3.000) | {predicted:.3f} |"


@pytest.mark.slow
def test_the_methods_are_timed_against_their_bars(tmp_path):
    small = "--pairs 1 --classes 5 --stream 2 3 --architecture ViT-S-32-alt --json found.json"
    command = [sys.executable, ROOT / "benchmarks/methods.py", *small.split()]
    said = subprocess.run(command, cwd=tmp_path, check=True, capture_output=True, text=True).stdout
    found = json.loads((tmp_path / "found.json").read_text())
    (ratio,) = found["features"]["ratios"]["zero"]
    assert re.search(rf"zero .* {ratio:.2f}x .*bar 8\n", said)
    assert {name for part in ("features", "context") for name in found[part]["times"]} >= {"tpt", "ctpt", "otpt", "mta"}
    assert {"tda, 2 images", "tda, 3 images", "dpe, 3 images"} <= set(found["steps"]["times"])


@pytest.mark.slow
def test_a_benchmark_runs_from_any_folder(tmp_path):
    command = [sys.executable, ROOT / "benchmarks/imports.py", "--pairs", "1", "--json", "found.json"]
    said = subprocess.run(command, cwd=tmp_path, check=True, capture_output=True, text=True).stdout
    (seconds,) = json.loads((tmp_path / "found.json").read_text())["times"]["import tpt_lib"]
    assert f"{seconds:.3f} s   ({seconds:.3f}-{seconds:.3f})" in said


def test_the_table_of_float16_is_that_of_the_measurement():
    half = script("float16")
    text, found = half.PAGE.read_text(), json.loads(half.NUMBERS.read_text())
    assert half.page(text, found) == text, "run python scripts/float16.py --tables"
    assert {row["method"] for row in found["rows"]} == {*half.from_features()}, "run python scripts/float16.py"
    found["rows"][0]["same class"] = 0.1234
    assert "12.3%" in half.page(text, found)


@pytest.mark.slow
def test_float16_is_compared_with_float32():
    found = script("float16").measure(2, 4, ["zero_shot", "zero"])
    exact, votes = found["rows"]
    assert 0 < exact["probability"] < 1e-2
    assert exact["same class"] == votes["same class"] == 1


@pytest.mark.slow
def test_fixed_and_broken_predictions_are_counted(tmp_path):
    settings, data = script("settings"), tpt_lib.load_tiny_drawings(n=3)
    found = settings.measure(tpt_lib.load_tiny(), data, tmp_path, {"views": (2, 4), "lr": (0.3,)})
    assert (found["n"], [row["value"] for row in found["views"]]) == (3, [2, 4])
    (ruined,) = found["lr"]
    assert (ruined["fixed"], ruined["broken"] > 0) == (0, True)


def test_the_figure_of_settings_is_that_of_the_measurement():
    figures = script("figures")
    found = json.loads(figures.SETTINGS.read_text())
    assert found["defaults"] == script("settings").DEFAULTS
    points = figures.settings(found).axes[-1].lines[0].get_ydata()
    assert list(points) == [pytest.approx(100 * (row["fixed"] - row["broken"]) / found["n"]) for row in found["lr"]]
    assert figures.gain(100, 10, 6) == (4.0, pytest.approx(1.96 * (16 - 0.16) ** 0.5))
