"""Runs that are killed and resumed, and files that belong to another run."""

import dataclasses
import functools
import os
import shutil
import signal
import subprocess
import sys
import time

import pytest
import torch
from support.command_line import save
from support.kills import killed_thirty_times
from support.marking import slow_but
from support.noise_runs import METHODS, NAMES, Noise, OwnClip, content, environment, lines_of, model, noise, run
from support.systems import existing, needs_pipes
from support.zoo import fresh

import tpt_lib
from tpt_lib import EvalSet, evaluate, evaluate_bongard, load_dataset, tpt_predict, zero_shot_predict


@pytest.mark.slow
def test_thirty_kills_at_random_moments_lose_nothing(whole, tmp_path):
    path = tmp_path / "run.jsonl"
    killed_thirty_times(path, lambda: run(path, Noise(slow=0.005), seeds=(0, 1)), lines=25)
    run(path, seeds=(0, 1))
    assert content(path) == content(whole)


JOB = """
import sys, torch
torch.set_num_threads(1)
from pathlib import Path
from support.noise_runs import Noise, OwnClip, run
run(Path(sys.argv[1]), Noise(slow=float(sys.argv[2])), model=OwnClip(), seeds=(0, 1))
"""


def started(path, slow=0.0):
    return subprocess.Popen([sys.executable, "-c", JOB, str(path), str(slow)], env=environment())


@pytest.mark.slow
def test_a_model_of_ones_own_is_killed_in_one_process_and_resumed_in_another(tmp_path):
    path, deadline = tmp_path / "run.jsonl", time.monotonic() + 120
    first = started(path, slow=0.1)
    try:
        while lines_of(path) < 6 and first.poll() is None and time.monotonic() < deadline:
            time.sleep(0.01)
    finally:
        first.kill()
    assert first.wait() == -signal.SIGKILL
    kept = path.read_bytes().splitlines(keepends=True)
    assert 6 <= len(kept) < 25
    complete = b"".join(line for line in kept if line.endswith(b"\n"))
    assert started(path).wait(timeout=120) == 0
    assert path.read_bytes().startswith(complete)  # what was done is not computed again: its seconds are the first's
    run(tmp_path / "whole.jsonl", model=OwnClip(), seeds=(0, 1))
    assert content(path) == content(tmp_path / "whole.jsonl")


class Passing(Noise):
    """Samples that fail, each for its own reason, as long as there is a file ``failing``."""

    def __init__(self, folder, reasons):
        super().__init__(len(reasons))
        self.folder, self.reasons = folder, reasons

    def __getitem__(self, i):
        if self.reasons[i] is not None and (self.folder / "failing").exists():
            raise self.reasons[i]
        return super().__getitem__(i)


REASONS = [
    None,
    FileNotFoundError("gone"),
    OSError(116, "Stale file handle"),
    MemoryError("13 GB"),
    tpt_lib.ImageError("truncated"),
    ValueError("a bug in a transform"),
]


@pytest.mark.parametrize(("options", "final"), [({}, [4]), ({"retry_errors": True}, [])])
def test_failures_that_may_pass_are_tried_again_when_a_run_is_resumed(options, final, whole, tmp_path):
    path = tmp_path / "run.jsonl"
    data = Passing(tmp_path, REASONS)
    (tmp_path / "failing").touch()
    first = run(path, data)
    (tmp_path / "failing").unlink()
    assert [said["errors"] for said in first.rows()] == [5, 5]
    before = path.read_bytes()
    again = run(path, data, **options)
    assert path.read_bytes().startswith(before)
    assert [said["errors"] for said in again.rows()] == [len(final)] * 2
    assert [row["sample"] for row in again.runs[0].rows if "error" in row] == final
    for row in again.runs[0].rows:
        if "error" not in row:
            assert row["methods"] == content(whole)[1 + row["sample"]]["methods"]
    before = path.read_bytes()
    run(path, data, **options)
    assert path.read_bytes() == before


def test_what_still_fails_is_not_written_again(tmp_path):
    path = tmp_path / "run.jsonl"
    run(path, Noise(3, bad=[1]))
    before = path.read_bytes()
    report = run(path, Noise(3, bad=[1]), retry_errors=True)
    assert path.read_bytes() == before
    assert [said["errors"] for said in report.rows()] == [1, 1]


def test_a_second_process_on_the_same_file_is_refused(tmp_path):
    path = tmp_path / "run.jsonl"

    class Twice(Noise):
        def __getitem__(self, i):
            if i == 1 and path.exists():  # the first look at the data is before the work
                with pytest.raises(BlockingIOError, match=f"run.jsonl' is being written by process {os.getpid()} on"):
                    run(path, Noise(3))
            return super().__getitem__(i)

    run(path, Twice(3))
    assert ["error" in row for row in content(path)[1:]] == [False] * 3
    assert list(tmp_path.iterdir()) == [path]


@needs_pipes
def test_what_is_no_run_file_is_refused_before_the_work(tmp_path, monkeypatch):
    for module in ("settings", "evaluate_bongard"):
        monkeypatch.setattr(f"tpt_lib.evaluation.run.{module}.identify", None)
    (tmp_path / "mine.json").write_text('{"precious": 1}')
    os.mkfifo(tmp_path / "pipe")
    problems = EvalSet("bongard", [((), (), (), ("positive",))], ("positive", "negative"))
    for out in (tmp_path, tmp_path / "pipe", *existing(["/dev/full"])):
        for call in (run, lambda out: evaluate_bongard(model(), problems, "tpt", out=out)):
            with pytest.raises(ValueError, match=r"' is a .*; a run file must be a regular file"):
                call(out)
    monkeypatch.undo()
    with pytest.raises(ValueError, match=r"mine\.json' is not a run file: it starts with b'{\"precious\": 1}'"):
        run(tmp_path / "mine.json")
    assert (tmp_path / "mine.json").read_text() == '{"precious": 1}'


def test_a_missing_torchmetrics_is_named_before_the_work(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "torchmetrics", None)
    problems = EvalSet("bongard", [((), (), (), ("positive",))], ("positive", "negative"))
    for call in (
        lambda: run(tmp_path / "run.jsonl"),
        lambda: evaluate_bongard(model(), problems, "tpt", out=tmp_path / "run.jsonl"),
        lambda: tpt_lib.paper.transfer_matrix(model(), [noise()], [noise()], out=tmp_path / "folder"),
    ):
        with pytest.raises(ImportError, match=r'needs? torchmetrics: pip install "tpt_lib\[evaluate\]"'):
            call()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("cut", slow_but([1, 40], [1, 7, 40]))
def test_half_a_line_is_dropped(cut, whole, tmp_path):
    path = tmp_path / "run.jsonl"
    path.write_bytes(b"".join(whole.read_bytes().splitlines(keepends=True)[:9])[:-cut])
    run(path, seeds=(0, 1))
    assert content(path) == content(whole)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"seeds": (0,)}, r"seeds is \[0, 1\] there and \[0\] here"),
        ({"n_views": 4}, r"settings.views.n_views is 8 there and 4 here"),
        ({"recipe": "augmix"}, r"settings.views.recipe is 'crop' there and 'augmix' here"),
        ({"samples": Noise(11)}, "n is 12 there and 11 here"),
        ({"methods": "zero_shot"}, "methods is"),
        (
            {"methods": {**METHODS, "TPT": functools.partial(tpt_predict, steps=2)}},
            r"settings\.methods\.TPT is .*steps=2",
        ),
    ],
)
def test_another_run_in_the_same_file_is_refused(change, message, whole):
    before = whole.read_bytes()
    with pytest.raises(ValueError, match=rf"belongs to a run with different settings \(.*{message}"):
        run(whole, **{"seeds": (0, 1), **change})
    assert whole.read_bytes() == before


def test_another_model_in_the_same_file_is_refused(whole):
    before = whole.read_bytes()
    other = fresh("open_clip-vit")
    run(whole, seeds=(0, 1), model=other)  # a copy with equal weights is the same model
    with torch.no_grad():
        other.module.visual.proj[0, 0] += 1
    with pytest.raises(ValueError, match=r"different settings \(settings\.image_tower is '\w+' there and '\w+' here\)"):
        run(whole, seeds=(0, 1), model=other)
    assert whole.read_bytes() == before


class OwnModule(torch.nn.Module):
    """A model of one's own that is a module."""

    def __init__(self):
        super().__init__()
        inner = fresh("open_clip-vit")
        self.weights = inner.module
        for name in ("image_spec", "logit_scale", "logit_bias", "tokenize", "embed_tokens", "encode_embeddings"):
            setattr(self, name, getattr(inner, name))
        self.encode_image = inner.encode_image


def test_a_module_of_ones_own_is_known_by_its_weights(tmp_path):
    path = tmp_path / "run.jsonl"
    run(path, Noise(3), model=OwnModule())
    before = path.read_bytes()
    other = OwnModule()
    run(path, Noise(3), model=other)
    assert path.read_bytes() == before
    with torch.no_grad():
        other.weights.visual.proj[0, 0] += 1
    with pytest.raises(ValueError, match=r"different settings \(settings\.image_tower is '\w+' there"):
        run(path, Noise(3), model=other)


class Scaling:
    """A method with a state."""

    def __init__(self, factor):
        self.factor = factor

    def predict(self, model, prompts, features):
        return zero_shot_predict(model, prompts, self.factor * features)

    __call__ = predict


def scaled(factor):
    def method(model, prompts, features):
        return zero_shot_predict(model, prompts, factor * features)

    return method


def scaling(factor, model, prompts, features):
    return zero_shot_predict(model, prompts, factor.mean() * features)


def big(value):
    """A tensor whose repr does not show its values."""
    return torch.ones(2000).index_fill(0, torch.tensor([1000]), value)


@pytest.mark.parametrize(
    "make",
    [
        Scaling,
        lambda k: Scaling(k).predict,
        scaled,
        lambda k: functools.partial(scaling, big(k)),
        lambda k: functools.partial(tpt_predict, objective=lambda logits: k * tpt_lib.marginal_entropy(logits)),
    ],
    ids=["an object", "a bound method", "a closure", "a positional tensor", "an objective"],
)
def test_another_method_of_the_same_name_is_refused(make, tmp_path):
    path = tmp_path / "run.jsonl"
    run(path, Noise(2), methods={"mine": make(1.0)})
    before = path.read_bytes()
    run(path, Noise(2), methods={"mine": make(1.0)})
    with pytest.raises(ValueError, match=r"different settings \(settings\.methods\.mine is"):
        run(path, Noise(2), methods={"mine": make(2.0)})
    assert path.read_bytes() == before


def test_a_method_without_content_is_refused_before_the_work(tmp_path):
    methods = {"mine": functools.partial(tpt_predict, select=(i for i in range(3)))}
    with pytest.raises(ValueError, match=r"evaluate: 'mine': a run cannot tell this method from another, .*generator"):
        run(tmp_path / "run.jsonl", methods=methods)
    assert not (tmp_path / "run.jsonl").exists()


def photos(folder, seed):
    for name in NAMES:
        save(folder / name / "1.png", seed)
    return load_dataset(folder)


def test_another_folder_of_the_same_name_is_refused(tmp_path):
    out = tmp_path / "photos.jsonl"
    one, other = photos(tmp_path / "v1/photos", 0), photos(tmp_path / "v2/photos", 1)
    evaluate(model(), one, "zero_shot", out=out, n_views=2, num_workers=0)
    before = out.read_bytes()
    with pytest.raises(ValueError, match=r"settings\.data\.root is '.*v1/photos' there and '.*v2/photos' here"):
        evaluate(model(), other, "zero_shot", out=out, n_views=2, num_workers=0)
    assert out.read_bytes() == before
    shutil.rmtree(tmp_path / "v1")
    with pytest.raises(ValueError, match=r"different settings \(settings\.data\.images\.0 is"):
        evaluate(model(), other, "zero_shot", out=out, n_views=2, num_workers=0)


def test_a_run_goes_on_after_the_data_has_moved_and_a_file_is_back(tmp_path):
    out, data = tmp_path / "photos.jsonl", photos(tmp_path / "old/photos", 0)
    (tmp_path / "old/photos/cat/1.png").unlink()
    evaluate(model(), data, "zero_shot", out=out, n_views=2, num_workers=0)
    shutil.move(tmp_path / "old", tmp_path / "new")
    report = evaluate(model(), photos(tmp_path / "new/photos", 0), "zero_shot", out=out, n_views=2, num_workers=0)
    assert report.rows()[0]["n"] + report.rows()[0]["errors"] == len(NAMES)


@pytest.mark.parametrize(
    ("change", "key"),
    [
        (lambda m: dataclasses.replace(m, image_spec=dataclasses.replace(m.image_spec, mean=(0.5,) * 3)), "image_spec"),
        (lambda m: m.module.logit_scale.data.add_(1) is None or m, "logit_scale"),
        (lambda m: fresh("open_clip-quickgelu"), "image_tower"),
    ],
)
def test_another_preprocessing_scale_or_activation_is_refused(change, key, tmp_path):
    path = tmp_path / "run.jsonl"
    run(path, Noise(2))
    with pytest.raises(ValueError, match=rf"settings\.{key}"):
        run(path, Noise(2), model=change(fresh("open_clip-vit")))


def test_a_model_that_cannot_be_seen_is_said_to_be_so_before_the_work(tmp_path):
    nameless = OwnClip()
    nameless.name = ""
    path = tmp_path / "run.jsonl"
    with pytest.warns(
        UserWarning, match=r"evaluate: this run cannot be resumed .* the weights of OwnClip cannot be seen"
    ):
        run(path, Noise(2), model=nameless)
    before = path.read_bytes()
    with pytest.raises(
        ValueError, match=r"run\.jsonl' exists and cannot be resumed: the weights of OwnClip cannot be seen"
    ):
        run(path, Noise(2), model=nameless)
    assert path.read_bytes() == before


def test_the_model_and_the_prompts_are_in_the_settings(whole):
    settings = content(whole)[0]["settings"]
    assert settings["model"] == type(model().module).__name__
    assert settings["methods"]["TPT"].startswith("tpt_lib.methods.tpt.tpt_predict on prompts ")
