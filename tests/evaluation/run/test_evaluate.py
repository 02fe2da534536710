"""The runner: what it writes, kills at random moments, other settings, bad images, workers, ranks and a Ray cluster."""

import functools
import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from support.zoo import fresh
from torch.utils.data import Dataset

import tpt_lib
from tpt_lib import EvalSet, evaluate, tpt_predict, zero_shot_predict

NAMES = ("cat", "dog", "red panda", "kite", "hen", "ant")
METHODS = {"zero-shot": zero_shot_predict, "TPT": tpt_predict}


class Noise(Dataset):
    """Random pictures of each class; those whose number is in ``bad`` cannot be read."""

    def __init__(self, count=12, bad=(), slow=0.0):
        self.count, self.bad, self.slow = count, set(bad), slow

    def __len__(self):
        return self.count

    def __getitem__(self, i):
        time.sleep(self.slow)
        draw = torch.Generator().manual_seed(i)
        image = torch.randint(256, (3, 40, 50), dtype=torch.uint8, generator=draw)
        return (f"no/such/file{i}.png" if i in self.bad else image), i % len(NAMES)


@functools.cache
def model():
    return fresh("open_clip-vit")


def run(out, samples=None, **options):
    options = {"model": model(), "n_views": 8, "workers": 0, **options}
    return evaluate(options.pop("method", METHODS), EvalSet("noise", samples or Noise(), NAMES), out=out, **options)


def content(path):
    """A run file without what depends on the clock and on versions."""
    lines = [json.loads(line) for line in Path(path).read_text().splitlines()]
    return [{k: v for k, v in line.items() if k not in ("seconds", "versions")} for line in lines]


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    path = tmp_path_factory.mktemp("runs") / "whole.jsonl"
    run(path, seeds=(0, 1))
    return path


def test_rows_are_what_the_methods_say(whole):
    header, *rows = content(whole)
    assert (header["kind"], header["dataset"], header["n"], header["seeds"]) == ("run", "noise", 12, [0, 1])
    assert [(row["seed"], row["sample"]) for row in rows] == [(s, i) for s in (0, 1) for i in range(12)]
    prompts = tpt_lib.class_prompts(model(), NAMES)
    for row in (rows[3], rows[17]):
        image, label = Noise()[row["sample"]]
        assert row["truth"] == label
        views = tpt_lib.augment_views(image, model().image_spec, n_views=8, seed=row["seed"])
        features = tpt_lib.encode_views(model(), views)
        for name, method in METHODS.items():
            want, got = method(model(), prompts, features), row["methods"][name]
            assert got["index"] == want.index
            assert abs(got["confidence"] - float(want.probs.max())) < 1e-5
            assert abs(got["entropy"] - want.entropy) < 1e-5
            assert got["top5"] == [NAMES.index(n) for n, _ in want.top(5)]
    seconds = json.loads(whole.read_text().splitlines()[1])["seconds"]
    assert set(seconds) == {"views", "features", "zero-shot", "TPT"}


def test_the_report_is_of_the_file(whole):
    report = run(whole, seeds=(0, 1))  # finished: nothing is computed
    _, *rows = content(whole)
    for said in report.rows():
        right = [row["methods"][said["method"]]["index"] == row["truth"] for row in rows]
        assert said["top1"] == pytest.approx(100 * sum(right) / len(right))


@pytest.mark.parametrize("options", [{"batch": 5}, {"workers": 2}, {"workers": 1, "batch": 4}])
def test_nothing_depends_on_batch_and_workers(options, whole, tmp_path):
    run(tmp_path / "run.jsonl", seeds=(0, 1), **options)
    for got, want in zip(content(tmp_path / "run.jsonl"), content(whole), strict=True):
        methods, wanted = got.pop("methods", None), want.pop("methods", None)
        assert got == want
        if isinstance(methods, dict):
            for name in METHODS:
                assert methods[name]["index"] == wanted[name]["index"]
                assert abs(methods[name]["confidence"] - wanted[name]["confidence"]) < 1e-4


def lines_of(path):
    return len(path.read_bytes().splitlines()) if path.exists() else 0


def killed(path, more, delay):
    """A process that evaluates, killed for good when so many more lines are there, and a moment has passed."""
    wanted = lines_of(path) + more
    child = os.fork()
    if child == 0:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        run(path, Noise(slow=0.005), seeds=(0, 1))
        os._exit(0)
    deadline = time.monotonic() + 30
    while lines_of(path) < min(wanted, 25) and time.monotonic() < deadline:
        time.sleep(0.002)
    time.sleep(delay)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)


def test_twenty_kills_at_random_moments_lose_nothing(whole, tmp_path):
    path = tmp_path / "run.jsonl"
    chance = random.Random(0)
    seen = [0]
    for _ in range(20):
        killed(path, chance.choice([0, 1, 1, 2]), chance.uniform(0, 0.03))
        seen.append(lines_of(path))
        assert seen[-1] >= seen[-2] - 1  # at most the line in flight
    assert len({n for n in seen if 1 < n < 25}) > 5, seen
    run(path, seeds=(0, 1))
    assert content(path) == content(whole)


@pytest.mark.parametrize("cut", [1, 7, 40])
def test_half_a_line_is_dropped(cut, whole, tmp_path):
    path = tmp_path / "run.jsonl"
    path.write_bytes(b"".join(whole.read_bytes().splitlines(keepends=True)[:9])[:-cut])
    run(path, seeds=(0, 1))
    assert content(path) == content(whole)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"seeds": (0,)}, r"seeds is \[0, 1\] there and \[0\] here"),
        ({"n_views": 4}, r"settings.views.n_views is \d+ there and 4 here"),
        ({"samples": Noise(11)}, "n is 12 there and 11 here"),
        ({"method": {"zero-shot": zero_shot_predict}}, "methods is"),
        (
            {"method": {**METHODS, "TPT": functools.partial(tpt_predict, steps=2)}},
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
    other = fresh("open_clip-vit")
    with torch.no_grad():
        other.module.visual.proj[0, 0] += 1
    with pytest.raises(ValueError, match=r"different settings \(settings\.\w+ is '\w+' there and '\w+' here"):
        run(whole, seeds=(0, 1), model=other)


def own(base):
    """A model of one's own, of no adapter."""
    inner = fresh("open_clip-vit")
    members = (
        "image_spec",
        "logit_scale",
        "logit_bias",
        "tokenize",
        "embed_tokens",
        "encode_embeddings",
        "encode_image",
    )
    made = type("Own", (base,), {"__init__": lambda self: base.__init__(self)})()
    for name, value in {**{name: getattr(inner, name) for name in members}, "inner": inner.module}.items():
        setattr(made, name, value)
    return made


def test_a_model_of_ones_own_is_known_by_its_weights(tmp_path):
    run(tmp_path / "run.jsonl", model=own(torch.nn.Module))
    other = own(torch.nn.Module)
    run(tmp_path / "run.jsonl", model=other)
    with torch.no_grad():
        other.inner.visual.proj[0, 0] += 1
    with pytest.raises(
        ValueError, match=r"belongs to a run with different settings \(settings\.weights is '\w+' there"
    ):
        run(tmp_path / "run.jsonl", model=other)


def test_a_model_that_is_no_module_goes_on_in_another_process(tmp_path):
    for _ in range(2):
        run(tmp_path / "run.jsonl", model=own(object))


def test_a_bad_image_is_a_row_with_its_error(whole, tmp_path):
    report = run(tmp_path / "run.jsonl", Noise(bad=[2, 7]), batch_size=4)
    _, *rows = content(tmp_path / "run.jsonl")
    assert [row["sample"] for row in rows if "error" in row] == [2, 7]
    assert "file2.png" in rows[2]["error"]
    assert "methods" not in rows[2]
    assert all(said["errors"] == 2 and said["n"] == 10 for said in report.rows())
    with pytest.raises(ValueError, match=r"sample 2 cannot be used: .*file2\.png"):
        run(tmp_path / "strict.jsonl", Noise(bad=[2, 7]), strict=True)


def test_methods_that_take_views_and_prompts_of_their_own(tmp_path):
    def brightest(model, prompts, views):
        assert views.shape == (8, 3, 32, 32)
        return tpt_lib.Prediction(prompts.names, torch.arange(6.0))

    brightest.takes_views = True
    coop = tpt_lib.class_prompts(model(), NAMES, context=tpt_lib.gaussian_context(model(), 4))
    methods = {
        "views": brightest,
        "coop": (zero_shot_predict, coop),
        "both": (tpt_lib.methods.prompt_ensemble_predict, [coop, coop]),
    }
    run(tmp_path / "run.jsonl", Noise(3), method=methods, batch_size=2)
    for row in content(tmp_path / "run.jsonl")[1:]:
        assert row["methods"]["views"]["index"] == 5
        assert row["methods"]["coop"]["index"] == row["methods"]["both"]["index"]


def test_progress_shows_the_accuracy(tmp_path, capsys):
    run(tmp_path / "run.jsonl", Noise(3), progress=True)
    assert "zero-shot=" in capsys.readouterr().err
    run(tmp_path / "quiet.jsonl", Noise(3))
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"method": {}}, "at least one method"),
        ({"seeds": ()}, "at least one method, one seed"),
        ({"batch": 0}, "a batch of one"),
        ({"samples": Noise(0)}, "samples must not be empty"),
        ({"engine": "slurm"}, "engine must be one of local, ray"),
        ({"prompts": "other"}, "the prompts have 1 classes and the dataset 6"),
    ],
)
def test_bad_input(change, message, tmp_path, no_shape_checks):
    if "prompts" in change:
        change = {"prompts": tpt_lib.class_prompts(model(), ["cat"])}
    samples = change.pop("samples", Noise(2))
    with pytest.raises(ValueError, match=message):
        evaluate(
            change.pop("method", METHODS), EvalSet("noise", samples, NAMES), out=tmp_path / "x", model=model(), **change
        )
    assert not (tmp_path / "x").exists()


def test_a_method_of_another_shape(tmp_path):
    with pytest.raises(TypeError, match="odd must return a Prediction"):
        run(tmp_path / "x", Noise(2), method={"odd": lambda model, prompts, features: 3})


RANKS = """
import os, sys
sys.path.insert(0, sys.argv[1])
import torch
torch.set_num_threads(1)
import test_evaluate
test_evaluate.run(sys.argv[2], seeds=(0, 1))
"""


def test_ranks_of_torchrun_merge_their_rows(whole, tmp_path):
    (tmp_path / "job.py").write_text(RANKS)
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2", "--master-port=29713"]
    here = str(Path(__file__).parent)
    command += [str(tmp_path / "job.py"), here, str(tmp_path / "run.jsonl")]
    paths = os.pathsep.join([str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", "")])
    settings = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": paths}
    subprocess.run(command, check=True, capture_output=True, env=settings)
    assert content(tmp_path / "run.jsonl") == content(whole)


def test_a_ray_cluster_gives_the_same_rows_while_a_worker_dies(whole, tmp_path):
    import ray

    here = str(Path(__file__).parent)
    pids = tmp_path / "pids"
    pids.mkdir()

    class Watched(Noise):
        """Notes the process that reads it; the first one to read sample 5 kills itself, as the kernel would."""

        def __getitem__(self, i):
            (pids / str(os.getpid())).touch()
            if i == 5 and not (tmp_path / "killed").exists():
                (tmp_path / "killed").touch()
                os.kill(os.getpid(), signal.SIGKILL)
            return super().__getitem__(i)

    paths = os.pathsep.join([here, os.environ.get("PYTHONPATH", "")])
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, runtime_env={"env_vars": {"PYTHONPATH": paths}})
    try:
        run(tmp_path / "run.jsonl", Watched(), seeds=(0, 1), backend="ray", num_workers=2, batch_size=2)
    finally:
        ray.shutdown()
    assert (tmp_path / "killed").exists()
    assert len(list(pids.iterdir())) >= 3  # two workers, and the one that took the place of the dead
    got, want = content(tmp_path / "run.jsonl"), content(whole)
    assert [(r["seed"], r["sample"], r["truth"]) for r in got[1:]] == [
        (r["seed"], r["sample"], r["truth"]) for r in want[1:]
    ]
    for row, wanted in zip(got[1:], want[1:], strict=True):
        for name in METHODS:
            assert row["methods"][name]["index"] == wanted["methods"][name]["index"]
            assert abs(row["methods"][name]["confidence"] - wanted["methods"][name]["confidence"]) < 1e-4


def problems_of(count, bad=()):
    from support.cases import problem_of

    made = [(*problem_of(seed, queries=2), ("positive", "negative")) for seed in range(count)]
    return [(["no/such.png"], *p[1:]) if i in bad else p for i, p in enumerate(made)]


def bongard_run(out, count=5, bad=(), **options):
    data = EvalSet("bongard", problems_of(count, bad), ("positive", "negative"))
    methods = {
        "TPT": functools.partial(tpt_lib.bongard_tpt, steps=4),
        "prototype": tpt_lib.bongard_prototype,
    }
    return tpt_lib.evaluate_bongard(methods, data, model=model(), out=out, **options)


def test_bongard_rows_are_the_verdicts_and_a_killed_run_goes_on(tmp_path):
    report = bongard_run(tmp_path / "run.jsonl", seeds=(0, 1), batch_size=2)
    header, *rows = content(tmp_path / "run.jsonl")
    assert header["n"] == 10
    for row in rows:
        problem = problems_of(5)[row["sample"] // 2]
        query = row["sample"] % 2
        assert row["truth"] == ("positive", "negative")[query]
        alone = tpt_lib.bongard_tpt(model(), *problem[:3], steps=4, seed=row["seed"])
        assert ("positive", "negative")[row["methods"]["TPT"]["index"]] == alone.verdicts[query]
        assert abs(row["methods"]["TPT"]["confidence"] - float(alone.logits[query].softmax(0).max())) < 1e-4
    by_name = {said["method"]: said for said in report.rows()}
    right = [row["methods"]["prototype"]["index"] == ("positive", "negative").index(row["truth"]) for row in rows]
    assert by_name["prototype"]["n"] == 10
    assert by_name["prototype"]["top1"] == pytest.approx(100 * sum(right) / 20)
    lines = (tmp_path / "run.jsonl").read_bytes().splitlines(keepends=True)
    (tmp_path / "cut.jsonl").write_bytes(b"".join(lines[:4])[:-3])  # in the middle of a problem
    bongard_run(tmp_path / "cut.jsonl", seeds=(0, 1), batch_size=2)
    assert [(r["seed"], r["sample"]) for r in content(tmp_path / "cut.jsonl")[1:]] == [
        (r["seed"], r["sample"]) for r in rows
    ]


def test_bongard_problems_are_not_shared_out_to_ranks(tmp_path, monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(RuntimeError, match=r"one of 2 ranks, which would all write .*run\.jsonl"):
        bongard_run(tmp_path / "run.jsonl")


def test_bad_bongard_problems(tmp_path):
    report = bongard_run(tmp_path / "run.jsonl", bad=[1], batch_size=2)
    errors = [row for row in content(tmp_path / "run.jsonl")[1:] if "error" in row]
    assert [row["sample"] for row in errors] == [2, 3]
    assert "no/such.png" in errors[0]["error"]
    assert all(said["errors"] == 2 for said in report.rows())
    with pytest.raises((ValueError, OSError), match=r"no/such\.png"):
        bongard_run(tmp_path / "strict.jsonl", bad=[1], strict=True)
    data = EvalSet("bongard", [(1, 2, 3, ("yes",))], ("positive", "negative"))
    with pytest.raises(ValueError, match=r"a problem is .positives, negatives, queries, truths."):
        tpt_lib.evaluate_bongard(tpt_lib.bongard_tpt, data, model=model(), out=tmp_path / "x")
    with pytest.raises(ValueError, match="at least one method"):
        tpt_lib.evaluate_bongard({}, data, model=model(), out=tmp_path / "x")
