"""Reports: rows, averages, tables, tests, and what they refuse."""

import builtins
import csv
import io
import statistics

import pytest
from support.runs import FOUR, header, many, report, row, said

import tpt_lib

SHIFTS = ["imagenet", "imagenet-a", "imagenet-v2", "imagenet-r", "imagenet-sketch"]


def test_rows_by_hand():
    zero_shot, tpt = report(
        (header(n=5), [*FOUR, {"seed": 0, "sample": 4, "truth": 0, "error": "ImageError: x"}])
    ).rows()
    assert (zero_shot["dataset"], zero_shot["method"], zero_shot["model"]) == ("pets", "zero-shot", "RN50")
    assert (zero_shot["n"], zero_shot["errors"], zero_shot["seeds"]) == (4, 1, 1)
    assert (zero_shot["top1"], tpt["top1"], tpt["top1_std"], tpt["top5"]) == (50, 75, None, None)
    assert (zero_shot["paper"], zero_shot["paper_table"], tpt["paper"]) == (83.57, 2, 84.49)
    assert zero_shot["seconds"] is None


def test_seeds_have_a_mean_and_a_deviation():
    top = header(methods=["TPT"], n=20, seeds=(0, 1, 2), model="ViT-B-16/openai")
    (found,) = report((top, [*many(10), *many(12, seed=1), *many(17, seed=2)])).rows()
    assert found["top1"] == pytest.approx(65)
    assert found["top1_std"] == pytest.approx(statistics.stdev([50, 60, 85]))
    assert (found["n"], found["seeds"]) == (20, 3)
    assert (found["paper"], found["paper_std"], found["paper_table"]) == (87.09, 0.1, 6)


def test_top5_only_with_five_classes():
    five = report((header(classes=5, n=1, methods=["TPT"]), [row(0, 4, TPT=said(0, classes=5))])).rows()[0]
    assert (five["top1"], five["top5"]) == (0, 100)
    four = report((header(classes=4, n=1, methods=["TPT"]), [row(0, 3, TPT=said(0, classes=4))])).rows()[0]
    assert four["top5"] is None


def test_seconds_are_a_methods_own_and_shared_ones_are_noted():
    rows = [row(i, 0, TPT=said(0), seconds={"views": 0.1, "features": 0.3 + i, "TPT": 0.02 + i}) for i in range(2)]
    found = report((header(methods=["TPT"], n=2), rows))
    assert found.rows()[0]["seconds"] == pytest.approx(0.52)
    assert "all methods shared views 0.1 s, features 0.8 s per image" in repr(found)


def test_it_prints_next_to_the_papers_numbers():
    text = repr(report((header(), FOUR)))
    head, line, zero_shot, tpt, note = text.splitlines()
    assert head.split("  ")[0] == "dataset"
    assert head.split()[:5] == ["dataset", "method", "n", "top-1", "paper"]
    assert zero_shot.split()[:5] == ["pets", "zero-shot", "4", "50.00", "83.57"]
    assert tpt.split()[:5] == ["pets", "TPT", "4", "75.00", "84.49"]
    assert note == "paper: top-1 of Shu et al., NeurIPS 2022, table 2, RN50"
    assert set(line) == {"-"}


def test_no_papers_numbers_next_to_another_model():
    other = report((header(model="tiny"), FOUR))
    assert "paper" not in repr(other)
    assert other.rows()[0]["paper"] is None
    assert report((header(model={"name": "ViT-B-16", "pretrained": "openai"}), FOUR)).rows()[0]["paper"] == 88.25
    assert "paper" not in repr(report((header(split="val"), FOUR)))


def test_errors_are_counted_and_said():
    bad = [{"seed": 0, "sample": i, "truth": 0, "error": "ImageError: cut off"} for i in (4, 5)]
    found = report((header(n=6), [*FOUR, *bad]))
    assert {row["errors"] for row in found.rows()} == {2}
    text = repr(found)
    assert text.splitlines()[0].split()[:4] == ["dataset", "method", "n", "errors"]
    assert "pets: 2 row(s) with an error are left out; the first is sample 4: ImageError: cut off" in text


def test_averages_are_below_the_table():
    runs = [(header(name, n=20, methods=["TPT"]), many(2 + i)) for i, name in enumerate(SHIFTS)]
    found = report(*runs)
    everything, ood = found.averages()
    assert (everything["dataset"], everything["top1"], everything["paper"]) == (
        "average: imagenet",
        pytest.approx(20),
        47.26,
    )
    assert (ood["dataset"], ood["top1"], ood["paper"]) == ("average: ood", pytest.approx(22.5), 43.89)
    lines = repr(found).splitlines()
    assert lines[7].split() == ["average:", "imagenet", "TPT", "-", "20.00", "47.26", "-", "-", "-"]
    assert report(*runs[:4]).averages() == []


def test_bongard_rows():
    rows = [
        row(0, "positive", bongard=said(0)),
        row(1, "negative", bongard=said(0)),
        row(2, "negative", bongard=said(1)),
    ]
    top = header("bongard-hoi", methods=["bongard"], n=3, split="seen_act_seen_obj") | {"classes": []}
    (found,) = report((top, rows)).rows()
    assert (found["dataset"], found["top1"]) == ("bongard-hoi/seen_act_seen_obj", pytest.approx(200 / 3))


def test_markdown_csv_and_pandas_say_the_same():
    found = report((header(), FOUR))
    head, line, first, *_ = found.to_markdown().splitlines()
    assert head.startswith("| dataset | method | n | top-1 | paper |")
    assert line.startswith("| --- | --- | ---: |")
    assert first.startswith("| pets | zero-shot | 4 | 50.00 | 83.57 |")
    assert found._repr_markdown_() == found.to_markdown()
    assert found._repr_html_() == found.table()._repr_html_()
    rows = list(csv.DictReader(io.StringIO(found.to_csv())))
    assert [(r["dataset"], r["method"], float(r["top1"]), r["top5"]) for r in rows] == [
        ("pets", "zero-shot", 50, ""),
        ("pets", "TPT", 75, ""),
    ]
    frame = found.to_pandas()
    assert list(frame.columns) == list(rows[0])
    assert frame.top1.tolist() == [50, 75]


def test_compare_pairs_the_samples():
    found = report((header(), FOUR)).compare("zero-shot", "TPT")
    (line,) = found.rows
    assert [line[name] for name in ("n", "both", "only_a", "only_b", "neither")] == [4, 1, 1, 2, 0]
    assert line["p"] == tpt_lib.evaluation.mcnemar(1, 2) == 1.0
    assert "by zero-shot only (a)" in repr(found)


def test_compare_takes_seeds_one_by_one_and_methods_from_several_files():
    a = (header(methods=["a"], n=20, seeds=(0, 1)), [*many(10, method="a"), *many(10, method="a", seed=1)])
    bad = {"seed": 0, "sample": 0, "truth": 0, "error": "x"}
    b = (header(methods=["b"], n=20, seeds=(1, 0)), [*many(3, method="b", seed=1), bad, *many(18, method="b")[1:]])
    first, second = sorted(report(a, b).compare("a", "b").rows, key=lambda line: line["seed"])
    assert [first[name] for name in ("seed", "n", "both", "only_a", "only_b", "neither")] == [0, 19, 9, 0, 8, 2]
    assert [second[name] for name in ("seed", "n", "both", "only_a", "only_b", "neither")] == [1, 20, 3, 7, 0, 10]
    assert first["p"] == 2 / 2**8
    with pytest.raises(ValueError, match="no method 'TPT'; there are 'a', 'b'"):
        report(a, b).compare("a", "TPT")
    elsewhere = (header("dtd", methods=["c"], n=20), many(3, method="c"))
    with pytest.raises(ValueError, match="'a' and 'c' share no samples"):
        report(a, elsewhere).compare("a", "c")


def test_models_are_told_apart_and_other_settings_refused():
    text = repr(report((header(), FOUR), (header(model="ViT-B/16"), FOUR)))
    assert text.splitlines()[0].split()[:3] == ["dataset", "method", "model"]
    assert "tables" not in text
    assert "table 2, RN50, ViT-B/16" in text
    with pytest.raises(
        ValueError,
        match=r"two runs of 'zero-shot' on pets differ in settings.n_views: 64 and 8; report them separately",
    ):
        report((header(n_views=64), FOUR), (header(n_views=8), FOUR))
    with pytest.raises(ValueError, match=r"have different samples: .*n: 4 and 20"):
        report((header(), FOUR), (header(n=20, methods=["a"]), many(3, method="a")))
    with pytest.raises(ValueError, match="runs must not be empty"):
        tpt_lib.Report(())


@pytest.mark.parametrize(
    ("package", "call", "hint"),
    [
        ("torchmetrics", lambda: report((header(), FOUR)).rows(), r'pip install "tpt_lib\[evaluate\]"'),
        ("pandas", lambda: report((header(), FOUR)).to_pandas(), r'pip install "tpt_lib\[pandas\]"'),
        (
            "matplotlib",
            lambda: tpt_lib.plots.plot_accuracies(report((header(), FOUR))),
            r'pip install "tpt_lib\[plots\]"',
        ),
    ],
)
def test_what_is_missing_is_named(monkeypatch, package, call, hint):
    real = builtins.__import__

    def refuse(name, *args, **kwargs):
        if name.split(".")[0] == package:
            raise ImportError(name)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", refuse)
    with pytest.raises(ImportError, match=hint):
        call()


def test_later_methods_are_next_to_their_published_numbers():
    top = header("imagenet", methods=["ZERO", "RLCF", "TPT"], model="ViT-B-16/openai", n=1)
    found = report((top, [row(0, 0, ZERO=said(0), RLCF=said(0), TPT=said(0))]))
    assert [(r["paper"], r["paper_table"]) for r in found.rows()] == [(69.31, None), (73.23, None), (68.98, 1)]
    assert found.rows()[2]["paper_source"] is None
    notes = found.notes()
    assert notes[0] == "paper: top-1 of Shu et al., NeurIPS 2022, table 1, ViT-B/16"
    zero = "tables in the repository of ZERO (Farina et al., NeurIPS 2024)"
    assert notes[1] == f"paper: top-1 of ZERO from {zero}"
    assert notes[2] == f"paper: top-1 of RLCF from {zero}, reward ViT-L/14, 3 steps"


def test_votes_have_no_calibration():
    found = report((header(not_probabilities=["TPT"]), FOUR))
    zero_shot, votes = found.rows()
    assert zero_shot["ece15"] is not None
    assert (votes["ece15"], votes["ece20"], votes["ece15_std"], votes["top1"]) == (None, None, None, 75)
    assert found.table().rows[1]["ECE, 15 bins"] is None
