"""Run files, metrics, the paper's numbers, reports and their figures."""

import builtins
import csv
import io
import json
import math
import statistics

import numpy as np
import pytest
import torch
from torchmetrics.classification import BinaryCalibrationError, MulticlassAccuracy, MulticlassCalibrationError

import tpt_lib
from tpt_lib.evaluation import Run, read_run
from tpt_lib.evaluation.metrics import Outcomes, averages, mean_std, outcomes, reliability, scores

SHIFTS = ["imagenet", "imagenet-a", "imagenet-v2", "imagenet-r", "imagenet-sketch"]


def said(index, confidence=0.5, entropy=0.7, classes=2):
    others = [i for i in range(classes) if i != index]
    return {"index": index, "confidence": confidence, "entropy": entropy, "top5": [index, *others][:5]}


def header(
    dataset="pets", methods=("zero-shot", "TPT"), classes=2, n=4, seeds=(0,), model="RN50", split="test", **settings
):
    names = [f"class {i}" for i in range(classes)]
    top = {
        "kind": "run",
        "dataset": dataset,
        "split": split,
        "classes": names,
        "methods": [*methods],
        "seeds": [*seeds],
    }
    settings = {"model": model, **settings}
    return {
        **top,
        "n": n,
        "settings": settings,
        "versions": {},
        "hash": json.dumps([dataset, split, settings, [*methods]]),
    }


def row(sample, truth, seed=0, seconds=None, **methods):
    answers = {name.replace("_", "-"): answer for name, answer in methods.items()}
    return {"kind": "row", "seed": seed, "sample": sample, "truth": truth, "methods": answers, "seconds": seconds or {}}


FOUR = (  # zero-shot is right twice, TPT three times, both once
    row(0, 0, zero_shot=said(0, 0.9), TPT=said(0, 0.95)),
    row(1, 1, zero_shot=said(0, 0.6), TPT=said(1, 0.65)),
    row(2, 1, zero_shot=said(0, 0.8), TPT=said(1, 0.7)),
    row(3, 0, zero_shot=said(0, 0.55), TPT=said(1, 0.5)),
)


def write(path, top, rows, end="\n"):
    path.write_text("\n".join(map(json.dumps, [top, *rows])) + end)
    return path


def report(*runs):
    return tpt_lib.Report(tuple(Run(top, tuple(rows)) for top, rows in runs))


def many(accuracy, n=20, method="TPT", seed=0):
    """Rows of a method right on the first ``accuracy`` samples."""
    return [row(i, 0, seed=seed, **{method: said(0 if i < accuracy else 1)}) for i in range(n)]


def test_the_papers_averages_are_averages():
    """Which finds nearly every wrong digit of the data."""
    wrong = set()
    for table in tpt_lib.paper_tables()[:9]:
        for line in table.rows:
            known = dict(zip(table.columns, line["values"], strict=True))
            for name, mean in averages({column: {0: value} for column, value in known.items()}).items():
                if abs(known[name] - mean[0]) > 0.011:
                    wrong.add((table.number, line["model"], line["method"], name))
    assert not wrong


# metrics


def plain_ece(confidence, correct, bins):
    """Bin by bin in numpy; a confidence of 1 has a bin of its own."""
    edges = np.linspace(0, 1, bins + 1, dtype=np.float32)
    total = 0.0
    for low, high in zip(edges, [*edges[1:], np.inf], strict=True):
        inside = (confidence >= low) & (confidence < high)
        if inside.any():
            total += inside.mean() * abs(correct[inside].mean() - confidence[inside].mean(dtype=np.float64))
    return total


@pytest.mark.parametrize("bins", [15, 20])
def test_calibration_error_is_the_plain_one_and_that_of_many_classes(bins):
    logits = 3 * torch.randn(500, 7)
    logits[:20] *= 100  # some confidences of exactly 1
    truth = torch.randint(7, (500,))
    probs = logits.softmax(-1)
    confidence, index = probs.max(-1)
    assert (confidence == 1).any()
    ours = tpt_lib.calibration_error(confidence, index == truth, bins=bins)
    assert ours == pytest.approx(plain_ece(confidence.numpy(), (index == truth).numpy(), bins), abs=1e-6)
    assert ours == pytest.approx(MulticlassCalibrationError(7, n_bins=bins, norm="l1")(probs, truth).item(), abs=1e-7)
    assert ours == BinaryCalibrationError(n_bins=bins, norm="l1")(confidence, (index == truth).long()).item()
    assert 0.05 < ours < 0.9


def test_calibration_error_by_hand():
    confidence = torch.tensor([0.95, 0.95, 0.95, 0.62, 0.62])
    correct = torch.tensor([True, True, False, True, False])
    by_hand = 3 / 5 * abs(2 / 3 - 0.95) + 2 / 5 * abs(1 / 2 - 0.62)
    assert tpt_lib.calibration_error(confidence, correct) == pytest.approx(by_hand, abs=1e-6)
    means, accuracies, counts = reliability(confidence, correct, bins=5)
    assert counts.tolist() == [0, 0, 0, 2, 3]
    assert accuracies[3:].tolist() == pytest.approx([1 / 2, 2 / 3])
    assert means[3:].tolist() == pytest.approx([0.62, 0.95])
    assert means[:3].isnan().all()
    assert reliability(torch.tensor([1.0]), torch.tensor([True]), bins=5)[2].tolist() == [0, 0, 0, 0, 1]


def test_scores_are_those_of_torchmetrics_on_logits():
    logits = torch.randn(300, 9)
    probs = logits.softmax(-1)
    truth = probs.multinomial(1)[:, 0]  # calibrated, so that the bins matter
    entropy = -(probs * probs.log()).sum(-1)
    top5 = probs.topk(5).indices
    found = scores(Outcomes(truth, top5[:, 0], probs.max(-1).values, entropy, top5))
    for k in (1, 5):
        assert found[f"top{k}"] == pytest.approx(
            100 * MulticlassAccuracy(9, top_k=k, average="micro")(logits, truth).item()
        )
    assert found["ece15"] == pytest.approx(
        100 * MulticlassCalibrationError(9, n_bins=15)(probs, truth).item(), abs=1e-4
    )
    assert found["ece20"] == pytest.approx(
        100 * MulticlassCalibrationError(9, n_bins=20)(probs, truth).item(), abs=1e-4
    )
    assert abs(found["ece15"] - found["ece20"]) > 0.1
    assert found["entropy"] == pytest.approx(entropy.mean().item())


def test_scores_by_hand():
    found = scores(outcomes(FOUR, "zero-shot", 2))
    assert found["top1"] == 50
    assert found["top5"] is None
    assert found["entropy"] == pytest.approx(0.7)
    by_hand = (abs(1 - 0.9) + 0.6 + 0.8 + abs(1 - 0.55)) / 4  # a bin each
    assert found["ece20"] == pytest.approx(100 * by_hand, abs=1e-4)


def test_errors_are_left_out_and_nothing_but_errors_has_no_scores():
    bad = {"kind": "row", "seed": 0, "sample": 4, "truth": 0, "error": "ImageError: cut off"}
    assert scores(outcomes([*FOUR, bad], "TPT", 2))["top1"] == 75
    assert set(scores(outcomes([bad], "TPT", 2)).values()) == {None}
    assert set(scores(outcomes([bad], "TPT", 9)).values()) == {None}


def test_mean_and_deviation_over_seeds():
    assert mean_std([50.0, 52.0, 57.0]) == (53.0, pytest.approx(math.sqrt((9 + 1 + 16) / 2)))
    assert mean_std([50.0]) == (50.0, None)
    assert mean_std([None, 50.0]) == (50.0, None)
    assert mean_std([None]) == (None, None)


def test_averages_need_all_of_their_datasets_and_are_made_seed_by_seed():
    two_seeds = {name: {0: 10.0 * i, 1: 10.0 * i + 5} for i, name in enumerate(SHIFTS)}
    assert averages(two_seeds) == {"average: imagenet": {0: 20.0, 1: 25.0}, "average: ood": {0: 25.0, 1: 30.0}}
    assert averages({**two_seeds, "imagenet-r": {1: 0.0}})["average: ood"] == {1: (15 + 25 + 0 + 45) / 4}
    del two_seeds["imagenet"]
    assert list(averages(two_seeds)) == ["average: ood"]
    del two_seeds["imagenet-a"]
    assert averages(two_seeds) == {}


def test_relative_improvement_is_that_of_figure_3():
    accuracies = {("dtd", "flowers102"): 33.41, ("dtd", "pets"): 50.0, ("TPT", "flowers102"): 62.69}
    table = tpt_lib.relative_improvement(accuracies, {"flowers102": 61.75, "pets": 40.0})
    dtd, tpt = table.rows
    assert dtd["flowers102"] == pytest.approx((33.41 - 61.75) / 61.75)
    assert round(dtd["flowers102"], 2) == -0.46
    assert dtd["pets"] == 0.25
    assert dtd["average"] == pytest.approx((dtd["flowers102"] + 0.25) / 2)
    assert tpt["pets"] is None
    assert tpt["average"] == tpt["flowers102"] > 0


@pytest.mark.parametrize(
    ("accuracies", "base", "message"),
    [
        ({}, {"a": 1.0}, "no accuracies"),
        ({("a", "b"): 1.0}, {"a": 1.0}, "no zero-shot accuracy for b"),
        ({("a", "b"): 1.0}, {"b": 0.0}, r"above 0, but those of \['b'\]"),
        ({("a", "average"): 1.0}, {"average": 1.0}, "names of columns"),
    ],
)
def test_relative_improvement_says_what_is_wrong(accuracies, base, message):
    with pytest.raises(ValueError, match=message):
        tpt_lib.relative_improvement(accuracies, base)


def test_mcnemar_is_the_exact_binomial_test():
    binomtest = pytest.importorskip("scipy.stats").binomtest
    for a, b in [(0, 0), (1, 0), (3, 3), (10, 2), (2, 10), (40, 61), (0, 30)]:
        expected = binomtest(a, a + b).pvalue if a + b else 1.0
        assert tpt_lib.mcnemar(a, b) == pytest.approx(expected, rel=1e-9)
    assert 0 <= tpt_lib.mcnemar(20000, 21000) < 1e-5, "many samples are no trouble"
    with pytest.raises(ValueError, match="negative, but got -1"):
        tpt_lib.mcnemar(-1, 2)


# run files


def test_a_file_is_read_as_it_was_written(tmp_path):
    run = read_run(write(tmp_path / "run.jsonl", header(), FOUR))
    assert run.rows == FOUR
    assert (run.label, run.model, run.n_classes, run.notes) == ("pets", "RN50", 2, ())


@pytest.mark.parametrize("cut", [1, 30, 100])
def test_a_last_line_that_was_cut_off_is_left_out_and_said(tmp_path, cut):
    path = write(tmp_path / "run.jsonl", header(), FOUR)
    path.write_bytes(path.read_bytes()[: -1 - cut])
    found = tpt_lib.Report.read(path)
    assert [row["n"] for row in found.rows()] == [3, 3]
    assert "run.jsonl: the last line was cut off" in repr(found)
    assert "not finished, 3 of 4 rows" in repr(found)


def test_a_last_line_without_its_newline_counts(tmp_path):
    found = tpt_lib.Report.read(write(tmp_path / "run.jsonl", header(), FOUR, end=""))
    assert found.rows()[0]["n"] == 4
    assert "cut off" not in repr(found)


def changed(**changes):
    return {**FOUR[0], **changes}


def answer(**changes):
    return {**FOUR[0], "methods": {**FOUR[0]["methods"], "TPT": {**said(0), **changes}}}


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ([], "run.jsonl: no header"),
        (["{"], "run.jsonl, line 1: not the header of a run.*but is {"),
        ([[1, 2]], "line 1: not the header of a run"),
        ([FOUR[0]], "line 1: not the header of a run"),
        ([{**header(), "classes": None}], "line 1: the header's 'classes' should be a list, but is None"),
        ([{**header(), "hash": None}], "line 1: the header has no hash"),
        ([header(), '{"kind": "ro', FOUR[0]], 'line 2: not a row.*but is {"kind": "ro'),
        ([header(), FOUR[0], "nonsense"], "line 3: not a row"),
        ([header(), header()], "line 2: not a row"),
        ([header(), changed(seed=7)], r"line 2: seed 7 is none of the header's \[0\]"),
        ([header(), changed(sample=4)], "line 2: sample 4 should be one of 0 to 3"),
        ([header(), changed(truth=2)], "line 2: truth 2 should be a class from 0 to 1"),
        ([header(), changed(truth="yes")], "line 2: truth 'yes' should be a class"),
        ([header(), changed(methods={"TPT": said(0)})], "line 2: nothing from method 'zero-shot'"),
        ([header(), answer(index=5)], "line 2: 'TPT' said class 5, but there are 2"),
        ([header(), answer(confidence=1.5)], "line 2: the confidence of 'TPT' should lie in 0 to 1, but is 1.5"),
        ([header(), answer(confidence=math.nan)], "should lie in 0 to 1, but is nan"),
        ([header(), answer(entropy=None)], "line 2: the entropy of 'TPT' is missing or wrong: None"),
        ([header(classes=6), answer()], "line 2: the top5 of 'TPT' should be 5 classes|of 'zero-shot' should be 5"),
        ([header(), FOUR[0], answer(index=1)], "two rows of seed 0, sample 0 differ"),
    ],
)
def test_malformed_files_say_what_is_wrong_and_where(tmp_path, lines, message):
    path = tmp_path / "run.jsonl"
    path.write_text("".join((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in lines))
    with pytest.raises(ValueError, match=message):
        tpt_lib.Report.read(path)


def test_shards_of_a_run_are_put_together(tmp_path):
    whole = tpt_lib.Report.read(write(tmp_path / "whole", header(), FOUR))
    twice = {**FOUR[2], "seconds": {"TPT": 9.0}}
    one = write(tmp_path / "0", header(), [FOUR[2], FOUR[0]])
    two = write(tmp_path / "1", header(), [FOUR[3], twice, FOUR[1]])
    assert tpt_lib.Report.read([one, two]).rows() == whole.rows()
    (merged,) = tpt_lib.Report.read([one, two]).runs
    assert merged.rows == FOUR
    assert tpt_lib.Report.read([one]).rows() != whole.rows()
    differing = write(tmp_path / "2", header(), [changed(truth=1)])
    with pytest.raises(ValueError, match="pets: two rows of seed 0, sample 0 differ"):
        tpt_lib.Report.read([one, differing])


# reports


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
    assert "all methods shared views 0.1 s, features 0.8 s an image" in repr(found)


def test_it_prints_with_the_papers_numbers_beside():
    text = repr(report((header(), FOUR)))
    head, line, zero_shot, tpt, note = text.splitlines()
    assert head.split("  ")[0] == "dataset"
    assert head.split()[:5] == ["dataset", "method", "n", "top-1", "paper"]
    assert zero_shot.split()[:5] == ["pets", "zero-shot", "4", "50.00", "83.57"]
    assert tpt.split()[:5] == ["pets", "TPT", "4", "75.00", "84.49"]
    assert note == "paper: top-1 of Shu et al., NeurIPS 2022, table 2, RN50"
    assert set(line) == {"-"}


def test_no_papers_numbers_beside_another_model():
    other = report((header(model="tiny"), FOUR))
    assert "paper" not in repr(other)
    assert other.rows()[0]["paper"] is None
    assert report((header(model={"name": "ViT-B-16", "pretrained": "openai"}), FOUR)).rows()[0]["paper"] == 88.25
    assert "paper" not in repr(report((header(split="val"), FOUR)))


def test_errors_are_counted_and_said():
    text = repr(report((header(n=5), [*FOUR, {"seed": 0, "sample": 4, "truth": 0, "error": "ImageError: cut off"}])))
    assert text.splitlines()[0].split()[:4] == ["dataset", "method", "n", "errors"]
    assert "pets: 1 row(s) with an error are left out; the first is sample 4: ImageError: cut off" in text


def test_averages_of_the_table_stand_below():
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
    assert line.startswith("| --- | ---: |")
    assert first.startswith("| pets | zero-shot | 4 | 50.00 | 83.57 |")
    assert found._repr_markdown_() == found.to_markdown()
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
    assert line["p"] == tpt_lib.mcnemar(1, 2) == 1.0
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
        ValueError, match=r"two runs of 'zero-shot' on pets differ in n_views: 64 and 8; report them apart"
    ):
        report((header(n_views=64), FOUR), (header(n_views=8), FOUR))
    with pytest.raises(ValueError, match=r"not of the same samples: .*n: 4 and 20"):
        report((header(), FOUR), (header(n=20, methods=["a"]), many(3, method="a")))
    with pytest.raises(ValueError, match="there are no runs"):
        tpt_lib.Report(())


# what is not installed


@pytest.mark.parametrize(
    ("package", "call", "hint"),
    [
        ("torchmetrics", lambda: report((header(), FOUR)).rows(), r'pip install "tpt_lib\[evaluate\]"'),
        ("pandas", lambda: report((header(), FOUR)).to_pandas(), "pip install pandas"),
        ("matplotlib", lambda: tpt_lib.plot_accuracies(report((header(), FOUR))), r'pip install "tpt_lib\[plots\]"'),
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


# figures


def test_reliability_draws_the_bins():
    found = report((header(), FOUR), (header("dtd"), FOUR))
    figure = tpt_lib.plot_reliability(found, bins=10)
    assert len(figure.axes) == 8
    above, below = figure.axes[:2]
    solid, under, over = ([bar.get_height() for bar in above.patches[i : i + 10]] for i in (0, 10, 20))
    assert solid == pytest.approx([0, 0, 0, 0, 0, 0.55, 0, 0, 0, 0.9], abs=1e-6)
    assert under == pytest.approx([0, 0, 0, 0, 0, 0.45, 0, 0, 0, 0.1], abs=1e-6)
    assert over == pytest.approx([0, 0, 0, 0, 0, 0, 0.6, 0, 0.8, 0], abs=1e-6)
    assert [bar.get_y() for bar in above.patches[10:20]] == solid == [bar.get_y() for bar in above.patches[20:30]]
    assert [bar.get_height() for bar in below.patches] == [0, 0, 0, 0, 0, 25, 25, 0, 25, 25]
    error = 100 * tpt_lib.calibration_error(
        torch.tensor([0.9, 0.6, 0.8, 0.55]), torch.tensor([True, False, False, True]), bins=10
    )
    assert above.texts[0].get_text() == f"ECE {error:.1f}%"
    assert [axes.get_title() for axes in figure.axes[::2]] == [
        "pets\nzero-shot",
        "pets\nTPT",
        "dtd\nzero-shot",
        "dtd\nTPT",
    ]


def test_accuracies_draw_bars_errors_and_the_papers():
    top = header(methods=["TPT"], n=20, seeds=(0, 1))
    other = header("mine", n=4)
    figure = tpt_lib.plot_accuracies(report((top, [*many(10), *many(14, seed=1)]), (other, FOUR)))
    (axes,) = figure.axes
    heights = {
        bars.get_label(): [bar.get_height() for bar in bars] for bars in axes.containers if hasattr(bars, "patches")
    }
    assert heights == {"TPT": pytest.approx([60, 75]), "zero-shot": [50]}
    spans = [segment[:, 1].tolist() for lines in axes.collections for segment in lines.get_segments()]
    deviation = statistics.stdev([50, 70])
    assert pytest.approx([60 - deviation, 60 + deviation]) in spans
    assert [84.42, 84.42] in spans
    assert [label.get_text() for label in axes.get_xticklabels()] == ["pets", "mine"]
    assert {text.get_text() for text in figure.legends[0].get_texts()} == {"TPT", "zero-shot", "the paper's"}


def test_improvement_draws_the_matrix():
    accuracies = {("dtd", "pets"): 30.0, ("dtd", "cars"): 40.0, ("TPT", "pets"): 60.0}
    figure = tpt_lib.plot_improvement(tpt_lib.relative_improvement(accuracies, {"pets": 50.0, "cars": 40.0}))
    axes = figure.axes[0]
    drawn = axes.images[0].get_array()
    assert drawn.filled(math.nan).tolist()[0] == pytest.approx([-0.4, 0, -0.2])
    assert drawn.mask.tolist() == [[False] * 3, [False, True, False]]
    assert axes.images[0].get_clim() == (-0.4, 0.4)
    assert [text.get_text() for text in axes.texts] == ["-0.40", "+0.00", "-0.20", "+0.20", "+0.20"]
    assert [label.get_text() for label in axes.get_xticklabels()] == ["pets", "cars", "average"]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["dtd", "TPT"]
    with pytest.raises(ValueError, match="not of relative_improvement; its columns are"):
        tpt_lib.plot_improvement(report((header(), FOUR)).table())
