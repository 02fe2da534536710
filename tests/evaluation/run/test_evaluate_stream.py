"""Streams in ``evaluate``: online methods next to episodic ones, orders, kills, states and ranks."""

import functools
import json
from dataclasses import dataclass

import pytest
import torch
from support.kills import killed_thirty_times
from support.noise_runs import LOOKS, NAMES, Noise, Watched, content, cut, model, run
from support.runs import FOUR, report
from support.runs import header as written_header

import tpt_lib
from tpt_lib.evaluation import read_run
from tpt_lib.evaluation.data.orders import shuffled_order
from tpt_lib.evaluation.run import stream_state
from tpt_lib.evaluation.run.stream_state import StateFile
from tpt_lib.evaluation.run_file import merge_run_files
from tpt_lib.methods import OnlineMethod, boostadapter, dmn, dpe, onzeta, stream, tda
from tpt_lib.methods.base import MethodEntry

METHODS = {"zero-shot": "zero_shot", "TDA": "tda", "OnZeta": "onzeta"}
EVERY = {
    "TPT": "tpt",
    "TDA": "tda",
    "BoostAdapter": "boostadapter",
    "DMN": dmn(capacity=3),
    "DPE": "dpe",
    "OnZeta": "onzeta",
    "TENT": "tent",
}
SEEDS = (0, 1)


@pytest.fixture(scope="module")
def whole_stream(tmp_path_factory):
    """The file of a run with online methods that nothing interrupted."""
    path = tmp_path_factory.mktemp("streams") / "whole.jsonl"
    run(path, methods=METHODS, seeds=SEEDS)
    return path


def features_of(samples, seed):
    views = [tpt_lib.augment_views(Noise()[i][0], model().image_spec, n_views=8, seed=seed) for i in samples]
    return [tpt_lib.encode_views(model(), each) for each in views]


@pytest.mark.parametrize("order", ["shuffle", "dataset"])
def test_a_run_is_a_stream_of_each_seed_in_its_order(order, whole_stream, tmp_path):
    path = whole_stream if order == "shuffle" else tmp_path / "run.jsonl"
    run(path, methods=METHODS, seeds=SEEDS, **({} if order == "shuffle" else {"order": order}))
    header, *rows = content(path)
    assert header["settings"]["stream"]["order"] == order
    prompts = tpt_lib.class_prompts(model(), NAMES)
    for seed in SEEDS:
        own = [row for row in rows if row["seed"] == seed]
        samples = shuffled_order(12, seed) if order == "shuffle" else list(range(12))
        assert [row["sample"] for row in own] == samples
        assert [row["position"] for row in own] == list(range(12))
        for name, method in {"TDA": tda(), "OnZeta": onzeta(expected=12)}.items():
            want = [float(p.probs.max()) for p in stream(method, model(), prompts, features_of(samples, seed))]
            assert [row["methods"][name]["confidence"] for row in own] == pytest.approx(want, abs=1e-6)


def test_each_seed_has_an_order_of_its_own_and_the_header_tells_it(tmp_path):
    digests = []
    for options in ({"seeds": (0,)}, {"seeds": (1,)}, {"order": "by-class"}, {"order": "dirichlet:5"}):
        samples = [Noise()[i] for i in range(12)]
        run(tmp_path / f"{len(digests)}.jsonl", samples, methods="tda", n_views=1, **options)
        digests.append(content(tmp_path / f"{len(digests)}.jsonl")[0]["settings"]["stream"]["digest"])
    assert len(set(digests)) == 4
    assert [row["truth"] for row in content(tmp_path / "2.jsonl")[1:]] == sorted(i % 6 for i in range(12))


def test_batches_and_workers_change_nothing(whole_stream, tmp_path):
    run(tmp_path / "run.jsonl", methods={**METHODS, "zero-shot": "zero_shot"}, seeds=SEEDS, batch_size=5, num_workers=2)
    for row, want in zip(content(tmp_path / "run.jsonl"), content(whole_stream), strict=True):
        if row["kind"] == "row":
            for name in ("TDA", "OnZeta"):
                assert row["methods"][name] == want["methods"][name]
            assert (row["sample"], row["position"]) == (want["sample"], want["position"])


def test_a_store_is_a_stream_too(whole_stream, tmp_path):
    data = tpt_lib.EvalSet("noise", Noise(), NAMES)
    store = tpt_lib.encode_dataset(
        model(), data, tmp_path / "store", n_views=8, seeds=SEEDS, dtype="float32", num_workers=0
    )
    tpt_lib.evaluate(model(), store, METHODS, out=tmp_path / "run.jsonl", seeds=SEEDS)
    got, want = content(tmp_path / "run.jsonl"), content(whole_stream)
    assert got[0]["settings"]["stream"] == want[0]["settings"]["stream"]
    assert [row["position"] for row in got[1:]] == [row["position"] for row in want[1:]]
    for row, other in zip(got[1:], want[1:], strict=True):
        for name, said in row["methods"].items():
            assert said["confidence"] == pytest.approx(other["methods"][name]["confidence"], abs=1e-5)
    tpt_lib.evaluate(model(), store, "tda", out=tmp_path / "sorted.jsonl", order="by-class")
    assert [row["truth"] for row in content(tmp_path / "sorted.jsonl")[1:]] == sorted(i % 6 for i in range(12))
    with pytest.raises(ValueError, match="order='domains' needs the domain of each sample, but noise has none"):
        tpt_lib.evaluate(model(), store, "tda", out=tmp_path / "domains.jsonl", order="domains")


@pytest.mark.slow
@pytest.mark.parametrize("batch_size", [1, 3])
def test_thirty_kills_at_random_moments_change_nothing(batch_size, tmp_path, monkeypatch):
    monkeypatch.setattr(stream_state, "SECONDS", 0.02)  # so that kills come before, during and after writes
    monkeypatch.setattr(stream_state, "SHARE", 1.0)
    whole, path = tmp_path / "whole.jsonl", tmp_path / "run.jsonl"
    options = {"methods": EVERY, "seeds": SEEDS, "batch_size": batch_size}
    run(whole, Noise(18), **options)
    found = []
    read = StateFile.read

    def noted(file):
        found.append(saved := read(file))
        with (tmp_path / "positions").open("a") as notes:
            notes.write(f"{saved and saved[:2]}\n")
        return saved

    monkeypatch.setattr(StateFile, "read", noted)
    killed_thirty_times(path, lambda: run(path, Noise(18, slow=0.005), **options), 37, choices=(0, 1, 2, 2))
    run(path, Noise(18), **options)
    assert len(set((tmp_path / "positions").read_text().splitlines())) > 3  # states of several positions were read
    assert content(path) == content(whole)


@pytest.mark.parametrize("lines", [5, 14])
def test_without_a_state_the_stream_is_stepped_through_again(lines, whole_stream, tmp_path):
    path = tmp_path / "run.jsonl"
    cut(whole_stream, path, lines)
    before = path.read_bytes()
    run(path, methods=METHODS, seeds=SEEDS)
    assert path.read_bytes().startswith(before)
    assert content(path) == content(whole_stream)
    assert [file.name for file in tmp_path.iterdir()] == ["run.jsonl"]


def stopped(path, after, **options):
    """Evaluate until so many samples were read."""
    with pytest.raises(KeyboardInterrupt):
        run(path, Watched(LOOKS + after), methods=METHODS, seeds=SEEDS, **options)


@pytest.mark.usefixtures("saved_after_each")
def test_a_state_saves_the_work_before_it(whole_stream, tmp_path):
    path = tmp_path / "run.jsonl"
    stopped(path, 17)
    assert sorted(file.name for file in tmp_path.iterdir()) == ["run.jsonl", "run.jsonl.state"]
    samples = Watched()
    run(path, samples, methods=METHODS, seeds=SEEDS)
    assert samples.read[LOOKS:] == shuffled_order(12, 1)[5:]
    assert content(path) == content(whole_stream)
    assert [file.name for file in tmp_path.iterdir()] == ["run.jsonl"]


@pytest.mark.usefixtures("saved_after_each")
def test_a_state_that_is_damaged_or_of_another_run_is_never_used(whole_stream, tmp_path):
    path, other = tmp_path / "run.jsonl", tmp_path / "other.jsonl"
    stopped(path, 5)
    stopped(other, 5, n_views=4)
    rows, state = path.read_bytes(), tmp_path / "run.jsonl.state"
    for content_of_state, message in [
        (state.read_bytes()[:-1] + b"!", "is damaged"),
        ((tmp_path / "other.jsonl.state").read_bytes(), "has the states of another run"),
        (b"precious", "is damaged"),
    ]:
        state.write_bytes(content_of_state)
        with pytest.raises(ValueError, match=rf"run\.jsonl\.state' {message}.*or move it away"):
            run(path, Watched(LOOKS), methods=METHODS, seeds=SEEDS)
        assert (path.read_bytes(), state.read_bytes()) == (rows, content_of_state)
    state.unlink()
    run(path, methods=METHODS, seeds=SEEDS)
    assert content(path) == content(whole_stream)


@pytest.mark.usefixtures("saved_after_each")
@pytest.mark.parametrize("dropped", [[2, 9], [13]])
def test_a_row_that_is_missing_before_the_state_is_computed_in_its_place(dropped, whole_stream, tmp_path):
    path = tmp_path / "run.jsonl"
    stopped(path, 17)
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(line for i, line in enumerate(lines) if i not in dropped))
    run(path, methods=METHODS, seeds=SEEDS)
    got, want = read_run(path), read_run(whole_stream)
    assert [row["methods"] for row in got.rows] == [row["methods"] for row in want.rows]
    assert [row["position"] for row in got.rows] == [row["position"] for row in want.rows]


def test_images_that_changed_after_their_rows_are_refused(whole_stream, tmp_path):
    path = tmp_path / "run.jsonl"
    cut(whole_stream, path, 6)
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    lines[3]["methods"]["TDA"]["confidence"] -= 0.01
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    before = path.read_bytes()
    with pytest.raises(ValueError, match=rf"sample {lines[3]['sample']} of seed 0 has a row in .*'TDA' now gives it "):
        run(path, methods=METHODS, seeds=SEEDS)
    assert path.read_bytes() == before


def test_an_image_that_is_gone_after_its_row_is_refused(whole_stream, tmp_path, monkeypatch):
    path = tmp_path / "run.jsonl"
    cut(whole_stream, path, 6)
    gone = shuffled_order(12, 0)[2]
    monkeypatch.setattr("tpt_lib.evaluation.run_checks.differing_data", lambda *_: {})
    with pytest.raises(
        ValueError, match=rf"sample {gone} of seed 0 has a row .* can no longer be used: MissingImageError"
    ):
        run(path, Noise(bad=[gone]), methods=METHODS, seeds=SEEDS)


@pytest.mark.usefixtures("saved_after_each")
def test_an_error_leaves_the_state_as_it_was_and_is_not_tried_again_later(tmp_path):
    order = shuffled_order(12, 0)
    without = [sample for i, sample in enumerate(order) if i not in (3, 7)]
    data = Watched(failing=[order[3], order[7]])
    path = tmp_path / "run.jsonl"
    assert [row["errors"] for row in run(path, data, methods="tda").rows()] == [2]
    data.failing.clear()
    before = path.read_bytes()
    run(path, data, methods="tda")
    assert path.read_bytes() == before
    rows = [row for row in content(path)[1:] if "error" not in row]
    assert [row["position"] for row in rows] == [i for i in range(12) if i not in (3, 7)]
    prompts = tpt_lib.class_prompts(model(), NAMES)
    want = [float(p.probs.max()) for p in stream("tda", model(), prompts, features_of(without, 0))]
    assert [row["methods"]["TDA"]["confidence"] for row in rows] == pytest.approx(want, abs=1e-6)


@pytest.mark.usefixtures("saved_after_each")
def test_errors_at_the_end_of_what_was_seen_are_tried_again(tmp_path):
    order, path = shuffled_order(12, 0), tmp_path / "run.jsonl"
    data = Watched(failing=order[8:])  # a disk that went away
    assert run(path, data, methods="tda").rows()[0]["errors"] == 4
    data.failing.clear()
    assert run(path, data, methods="tda").rows()[0]["errors"] == 0
    run(tmp_path / "whole.jsonl", methods="tda")
    assert read_run(path).rows[0].keys() == read_run(tmp_path / "whole.jsonl").rows[0].keys()
    got, want = (
        [(row["sample"], row["methods"]) for row in read_run(p).rows] for p in (path, tmp_path / "whole.jsonl")
    )
    assert got == want


@pytest.mark.usefixtures("saved_after_each")
def test_strict_stops_at_an_error_and_resumes_there(tmp_path):
    order, path = shuffled_order(12, 0), tmp_path / "run.jsonl"
    data = Watched(failing=[order[5]])
    with pytest.raises(ValueError, match=f"sample {order[5]} cannot be used"):
        run(path, data, methods="tda", strict=True)
    data.failing.clear()
    run(path, data, methods="tda", strict=True)
    run(tmp_path / "whole.jsonl", methods="tda")
    assert (
        content(path)[1:] == content(tmp_path / "whole.jsonl")[1:]
    )  # the header has digests of images that can be read


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"order": "dataset"}, r"settings\.stream\.order is 'shuffle' there and 'dataset' here"),
        ({"methods": {**METHODS, "TDA": tda(alpha=1.0)}}, r"settings\.methods\.TDA is"),
        ({"methods": {**METHODS, "TDA": functools.partial(tda, alpha=1.0)}}, r"settings\.methods\.TDA is .*alpha=1\.0"),
    ],
)
def test_another_stream_in_the_same_file_is_refused(options, message, whole_stream):
    before = whole_stream.read_bytes()
    with pytest.raises(ValueError, match=rf"different settings \(.*{message}"):
        run(whole_stream, **{"methods": METHODS, "seeds": SEEDS, **options})
    assert whole_stream.read_bytes() == before


def test_a_finished_run_is_only_read(whole_stream):
    before = whole_stream.read_bytes()
    read = run(whole_stream, Watched(LOOKS), methods=METHODS, seeds=SEEDS)
    assert whole_stream.read_bytes() == before
    assert [row["method"] for row in read.rows()] == list(METHODS)
    assert "noise: online methods saw the images in the order 'shuffle'" in read.notes()


counting = OnlineMethod(init=lambda model, prompts: 0, step=lambda model, prompts, state, features: (state, None))


@dataclass(frozen=True)
class Seen:
    images: torch.Tensor


@pytest.mark.parametrize(
    ("options", "kind", "message"),
    [
        (
            {"order": "sorted"},
            ValueError,
            "evaluate: order must be one of dataset, shuffle, by-class, dirichlet, domains",
        ),
        ({"order": "by-class"}, ValueError, "order='by-class' needs the labels .* noise does not list them"),
        (
            {"order": "domains"},
            ValueError,
            "order='domains' needs the domain of each sample, but noise has none",
        ),
        ({"methods": "tpt", "order": "shuffle"}, ValueError, "order was given, but none of the methods is online"),
        ({"methods": "tpt", "streams": "per-rank"}, ValueError, "streams was given, but none of the methods is online"),
        ({"streams": "many"}, ValueError, "evaluate: streams must be 'per-rank' or None, but got 'many'"),
        (
            {"backend": "ray"},
            ValueError,
            "'TDA' is an online method, .* Ray's actors take any samples in any order; use one",
        ),
        (
            {"retry_errors": True},
            ValueError,
            "predicted without it, so it cannot be tried again; leave out retry_errors",
        ),
        ({"methods": {"mine": counting}}, TypeError, "evaluate: 'mine': a state must be a dataclass of tensors"),
        ({"methods": functools.partial(tda, alfa=1)}, TypeError, "'TDA': unknown keyword 'alfa'; did you mean 'alpha'"),
        ({"methods": functools.partial(onzeta, expected=0)}, ValueError, "onzeta: expected must be"),
        (
            {"methods": {"mine": ("tda", "two")}},
            ValueError,
            "'mine' is an online method and takes one prompt per class",
        ),
        (
            {"methods": MethodEntry("batches", "batches", tpt_lib.zero_shot_predict, needs=("images",))},
            ValueError,
            "'batches' needs images, but evaluate runs episodic methods on features or views; declare",
        ),
    ],
)
def test_what_is_wrong_is_refused_before_the_file_is_touched(options, kind, message, tmp_path, no_shape_checks):
    if isinstance(options.get("methods"), dict) and isinstance(options["methods"]["mine"], tuple):
        options = {"methods": {"mine": ("tda", [tpt_lib.class_prompts(model(), NAMES)] * 2)}}
    with pytest.raises(kind, match=message):
        run(tmp_path / "run.jsonl", Noise(2), **{"methods": "tda", **options})
    assert list(tmp_path.iterdir()) == []


def as_rank(monkeypatch, rank, ranks):
    monkeypatch.setenv("RANK", str(rank))
    monkeypatch.setenv("WORLD_SIZE", str(ranks))
    merge = "tpt_lib.evaluation.run.write_run.merge_shares"
    monkeypatch.setattr(merge, lambda out, shares: rank or merge_run_files(shares, out))


def test_ranks_are_refused_unless_each_has_a_stream_of_its_own(tmp_path, monkeypatch):
    path = tmp_path / "run.jsonl"
    as_rank(monkeypatch, 1, 2)
    with pytest.raises(ValueError, match="but 2 ranks see a share each; use one process, or streams='per-rank'"):
        run(path, methods="tda")
    assert list(tmp_path.iterdir()) == []
    monkeypatch.setattr("tpt_lib.Report.read", lambda _: report((written_header(), FOUR)))
    for rank in (1, 0):
        as_rank(monkeypatch, rank, 2)
        run(path, methods=["tda", "onzeta"], streams="per-rank")
    header, *rows = content(path)
    assert header["settings"]["stream"] | {"digest": ""} == {
        "order": "shuffle", "streams": "per-rank", "ranks": 2, "digest": "",
    }  # fmt: skip
    assert "expected=6" in header["settings"]["methods"]["OnZeta"]
    assert [row["sample"] for row in rows] == list(range(12))
    prompts = tpt_lib.class_prompts(model(), NAMES)
    for rank in (0, 1):
        own = [sample for sample in shuffled_order(12, 0) if sample % 2 == rank]
        found = {row["sample"]: row for row in rows}
        assert [found[sample]["position"] for sample in own] == list(range(6))
        want = [float(p.probs.max()) for p in stream("tda", model(), prompts, features_of(own, 0))]
        assert [found[sample]["methods"]["TDA"]["confidence"] for sample in own] == pytest.approx(want, abs=1e-6)
    as_rank(monkeypatch, 2, 3)
    with pytest.raises(ValueError, match=r"settings\.stream\.ranks is 2 there and 3 here"):
        run(path, methods=["tda", "onzeta"], streams="per-rank")


def test_one_process_may_ask_for_a_stream_per_rank(whole_stream):
    run(whole_stream, methods=METHODS, seeds=SEEDS, streams="per-rank")


def test_a_method_of_ones_own_joins(tmp_path):
    def init(model, prompts):
        return Seen(torch.zeros(()))

    def step(model, prompts, state, features):
        return Seen(state.images + 1), tpt_lib.Prediction(prompts.names, state.images * torch.arange(6.0))

    run(tmp_path / "run.jsonl", methods={"mine": OnlineMethod(init, step), "boost": boostadapter(), "DPE": dpe()})
    entropies = [row["methods"]["mine"]["entropy"] for row in content(tmp_path / "run.jsonl")[1:]]
    assert entropies == sorted(entropies, reverse=True)
    assert len(set(entropies)) == 12


def test_a_step_that_returns_something_else_is_named(tmp_path, no_shape_checks):
    mine = OnlineMethod(
        lambda model, prompts: Seen(torch.zeros(())), lambda model, prompts, state, features: (state, 3)
    )
    with pytest.raises(TypeError, match="mine: a method must return a Prediction of one image, but it returned int"):
        run(tmp_path / "run.jsonl", methods={"mine": mine})


def test_the_drawings_of_a_dataset_in_memory_can_be_sorted(tmp_path):
    data = tpt_lib.EvalSet("pairs", [Noise()[i] for i in range(6)], NAMES)
    tpt_lib.evaluate(model(), data, "tda", out=tmp_path / "run.jsonl", n_views=1, order="by-class")
    assert [row["sample"] for row in content(tmp_path / "run.jsonl")[1:]] == list(range(6))
