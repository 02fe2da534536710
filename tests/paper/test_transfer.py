"""Figure 3: the matrix from accuracies, and the whole experiment against the same by hand."""

import functools
import json
import sys

import pytest
import torch
from support.zoo import fresh

import tpt_lib
from tpt_lib import EvalSet
from tpt_lib.evaluation.run_identity import describe
from tpt_lib.paper import transfer_matrix

CLASSES = {"birds": ("kite", "hen", "crane"), "pets": ("cat", "dog", "red panda", "ant")}
FIT = functools.partial(tpt_lib.fit_coop, epochs=2, lr=0.5, progress=False)
OPTIONS = {"fit": FIT, "shots": 2, "n_views": 4, "num_workers": 0, "progress": False}


@functools.cache
def model():
    return fresh("open_clip-vit")


def images(count, seed):
    return list(
        torch.randint(256, (count, 3, 40, 50), dtype=torch.uint8, generator=torch.Generator().manual_seed(seed))
    )


def said(prompts, pictures):
    features = tpt_lib.encode_images(model(), pictures)
    return [tpt_lib.zero_shot_predict(model(), prompts, feature[None]).index for feature in features]


@functools.cache
def sets(name):
    """A train set of noise, and a test set that zero-shot gets half right."""
    classes = CLASSES[name]
    train = [(image, i % len(classes)) for i, image in enumerate(images(4 * len(classes), seed=1))]
    pictures = images(12, seed=2)
    truth = said(tpt_lib.class_prompts(model(), classes), pictures)
    test = [(p, (t + i % 2) % len(classes)) for i, (p, t) in enumerate(zip(pictures, truth, strict=True))]
    return EvalSet(name, train, classes, split="train"), EvalSet(name, test, classes)


def sources():
    return [sets(name)[0] for name in CLASSES]


def targets():
    return [sets(name)[1] for name in CLASSES]


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    folder = tmp_path_factory.mktemp("transfer")
    return folder, transfer_matrix(model(), sources(), targets(), out=folder, **OPTIONS)


def by_hand(source, target):
    start = tpt_lib.class_prompts(model(), source.classes, context=tpt_lib.gaussian_context(model(), 16))
    shots = [source.samples[i] for i in tpt_lib.evaluation.sample_few_shot(source.labels, 2)]
    learned = FIT(model(), start, [image for image, _ in shots], [label for _, label in shots]).prompts
    prompts = tpt_lib.class_prompts(model(), target.classes, context=learned.context)
    found = said(prompts, [image for image, _ in target.samples])
    return sum(a == b for a, b in zip(found, target.labels, strict=True)) / len(found)


@pytest.mark.slow
def test_the_matrix_is_that_of_prompts_learned_by_hand(done):
    _, table = done
    assert table.column("source") == ["birds", "pets", "TPT"]
    assert table.columns == ["source", "birds", "pets", "average"]
    (birds, pets), (birds_test, pets_test) = sources(), targets()
    assert table.rows[0]["birds"] is table.rows[1]["pets"] is None  # a source is no target of its own
    assert table.rows[0]["pets"] == pytest.approx((by_hand(birds, pets_test) - 0.5) / 0.5)
    assert table.rows[1]["birds"] == pytest.approx((by_hand(pets, birds_test) - 0.5) / 0.5)
    assert {table.rows[0]["pets"], table.rows[1]["birds"]} != {0.0}
    assert len(tpt_lib.plots.plot_improvement(table).axes[0].texts) == 7


@pytest.mark.slow
def test_the_files_are_runs_and_prompts(done):
    folder, table = done
    rows = tpt_lib.Report.read(sorted(folder.glob("*.jsonl"))).rows()
    top1 = {(row["dataset"], row["method"]): row["top1"] for row in rows}
    assert set(top1) == {(t, m) for t in CLASSES for m in ("zero-shot", "TPT", *CLASSES) if m != t}
    assert top1["pets", "zero-shot"] == pytest.approx(50)
    assert table.rows[2]["pets"] == pytest.approx(top1["pets", "TPT"] / 50 - 1)
    assert tpt_lib.load_prompt(folder / "pets-2-shots-seed-0.pth.tar").context.shape[0] == 16


def content(file):
    return [{k: v for k, v in json.loads(line).items() if k != "seconds"} for line in file.read_text().splitlines()]


def test_it_resumes_where_it_was_stopped(done, tmp_path):
    folder, table = done
    epochs = []

    def stopping(*args, **options):
        epochs.append(options["checkpoint"].name)
        if len(epochs) == 2:
            raise KeyboardInterrupt
        return FIT(*args, **options)

    with pytest.raises(KeyboardInterrupt):
        transfer_matrix(model(), sources(), targets(), out=tmp_path, **{**OPTIONS, "fit": stopping})
    (learned,) = tmp_path.glob("*")
    assert learned.name == "birds-2-shots-seed-0.pth.tar"
    before = learned.stat().st_mtime_ns
    again = transfer_matrix(model(), sources(), targets(), out=tmp_path, **OPTIONS)
    assert learned.stat().st_mtime_ns == before  # read, not learned again
    assert again.rows == table.rows
    for name in CLASSES:
        assert content(tmp_path / f"{name}.jsonl") == content(folder / f"{name}.jsonl")


def test_cocoop_keeps_its_network(tmp_path):
    fit = functools.partial(tpt_lib.fit_cocoop, epochs=1, batch_size=4, progress=False)
    options = {**OPTIONS, "fit": fit, "context": "a photo of a"}
    transfer_matrix(model(), sources()[:1], targets()[1:], out=tmp_path, **options)
    learned = tpt_lib.load_prompt(tmp_path / "birds-2-shots-seed-0.pth.tar")
    assert learned.meta_net is not None
    prompts = tpt_lib.class_prompts(model(), CLASSES["pets"], context=learned)
    used = content(tmp_path / "pets.jsonl")[0]["settings"]["methods"]["birds"]
    assert used == describe(tpt_lib.zero_shot_predict, prompts)


def test_names_that_cannot_be_told_apart(tmp_path):
    with pytest.raises(
        ValueError, match=r"sources must be one or more sets of different names, but got \['birds', 'birds'\]"
    ):
        transfer_matrix(model(), [sources()[0]] * 2, targets(), out=tmp_path)
    with pytest.raises(ValueError, match=r"targets must be one or more sets"):
        transfer_matrix(model(), sources(), [], out=tmp_path)
    odd = EvalSet("TPT", [(torch.rand(3, 8, 8), 0)], ("cat", "dog"))
    with pytest.raises(ValueError, match=r"\['TPT'\] are names of methods; rename the targets"):
        transfer_matrix(model(), sources(), [odd], out=tmp_path)


def test_unknown_keywords_are_refused_before_anything_is_learned(tmp_path):
    with pytest.raises(TypeError, match=r"transfer_matrix: unknown keyword 'n_view'; did you mean 'n_views'\?"):
        transfer_matrix(model(), sources(), targets(), out=tmp_path, n_view=4)
    assert list(tmp_path.iterdir()) == []


def test_relative_improvement_is_that_of_figure_3():
    accuracies = {("dtd", "flowers102"): 33.41, ("dtd", "pets"): 50.0, ("TPT", "flowers102"): 62.69}
    table = tpt_lib.paper.relative_improvement(accuracies, {"flowers102": 61.75, "pets": 40.0})
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
        tpt_lib.paper.relative_improvement(accuracies, base)


def test_missing_torchmetrics_is_reported_before_learning(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "torchmetrics", None)
    one = EvalSet("one", [(torch.rand(3, 8, 8), 0)], ("cat",))

    def fit(*_, **__):
        raise AssertionError("a prompt was learned first")

    with pytest.raises(ImportError, match=r'pip install "tpt_lib\[evaluate\]"'):
        transfer_matrix(model(), [one], [one], out=tmp_path, fit=fit)
