"""Methods that learn from batches of images in ``evaluate``: TENT, alone and next to others, stopped, resumed and refused."""

import functools
import re
from dataclasses import dataclass

import pytest
import torch
from support.marking import slow_but
from support.noise_runs import LOOKS, NAMES, Noise, Watched, as_rank, content, cut, model, run
from support.zoo import fresh

import tpt_lib
from tpt_lib.evaluation import read_run
from tpt_lib.evaluation.data.orders import shuffled_order
from tpt_lib.evaluation.run_file import merge_run_files, method_results
from tpt_lib.methods import OnlineMethod, tent

SEEDS, SIZE = (0, 1), 5  # batches of 5, 5 and 2
ORDER = shuffled_order(12, 0)
NEXT_TO = {"TPT": "tpt", "TENT": "tent", "TDA": "tda"}


@pytest.fixture(scope="module")
def whole_run(tmp_path_factory):
    """The file of a run of TENT that nothing interrupted."""
    path = tmp_path_factory.mktemp("batches") / "whole.jsonl"
    batches(path)
    return path


def batches(path, samples=None, **options):
    return run(path, samples, **{"methods": "tent", "seeds": SEEDS, "batch_size": SIZE, **options})


def in_batches(samples, size=SIZE):
    return [samples[first : first + size] for first in range(0, len(samples), size)]


def plain_loop(several, clip=None):
    """The results of each sample, from batches of samples given to the steps of TENT."""
    clip = clip or model()
    prompts, method = tpt_lib.class_prompts(clip, NAMES), tent()
    state, found = method.init(clip, prompts), {}
    for samples in several:
        images = torch.stack([tpt_lib.views.preprocess(Noise(20)[i][0], clip.image_spec) for i in samples])
        state, said = method.step(clip, prompts, state, images)
        found |= dict(zip(samples, method_results(said.logits, said.before.logits), strict=True))
    return found


def results(path, name="TENT", seed=0):
    return {
        row["sample"]: row["methods"][name] for row in read_run(path).rows if row["seed"] == seed and "methods" in row
    }


def test_rows_are_those_of_a_plain_loop_and_of_classify(whole_run):
    header, *rows = content(whole_run)
    assert header["settings"]["stream"]["batch_size"] == SIZE
    assert [(row["seed"], row["position"]) for row in rows] == [(seed, i) for seed in SEEDS for i in range(12)]
    for seed in SEEDS:
        order = shuffled_order(12, seed)
        assert results(whole_run, seed=seed) == plain_loop(in_batches(order))
        prompts = tpt_lib.class_prompts(model(), NAMES)
        images = [Noise()[i][0] for i in order]
        said = tpt_lib.classify(model(), images, prompts, method="tent", batch_size=SIZE)
        assert results(whole_run, seed=seed) == dict(
            zip(order, method_results(said.logits, said.before.logits), strict=True)
        )


def test_other_methods_next_to_it_change_nothing(whole_run, tmp_path):
    """And it changes none of them. It sees the plain image of any number of views."""
    batches(tmp_path / "run.jsonl", methods=NEXT_TO, num_workers=1)
    batches(tmp_path / "without.jsonl", methods={"TPT": "tpt", "TDA": "tda"})
    assert "batch_size" not in content(tmp_path / "without.jsonl")[0]["settings"]["stream"]
    for seed in SEEDS:
        assert results(tmp_path / "run.jsonl", "TENT", seed) == results(whole_run, "TENT", seed)
        for name in ("TPT", "TDA"):
            assert results(tmp_path / "run.jsonl", name, seed) == results(tmp_path / "without.jsonl", name, seed)


@pytest.mark.parametrize("lines", slow_but([3, 15], [1, 3, 6, 8, 12, 13, 15, 20, 24]))
def test_a_killed_run_continues_with_the_same_batches(lines, whole_run, tmp_path):
    path = tmp_path / "run.jsonl"
    cut(whole_run, path, lines, b'{"kind": "row", "se')
    batches(path)
    assert content(path) == content(whole_run)


@pytest.mark.parametrize("lines", slow_but([9], [5, 9, 12]))
def test_methods_next_to_it_continue_with_the_same_groups(lines, tmp_path):
    whole, path = tmp_path / "whole.jsonl", tmp_path / "run.jsonl"
    batches(whole, methods=NEXT_TO, seeds=(0,))
    cut(whole, path, lines)
    batches(path, methods=NEXT_TO, seeds=(0,))
    assert content(path) == content(whole)


STOPS = [(7, 2, 5), (3, 0, 0), (7, 0, 5), (10, 0, 10), (11, 1, 10)]


@pytest.mark.usefixtures("saved_after_each")
@pytest.mark.parametrize(("reads", "rows", "start"), slow_but(STOPS[:1], STOPS))
def test_a_state_is_that_of_the_end_of_a_batch(reads, rows, start, whole_run, tmp_path):
    """Also if some rows of the next batch were written."""
    path = tmp_path / "run.jsonl"
    with pytest.raises(KeyboardInterrupt):
        batches(path, Watched(LOOKS + reads))
    lines = 1 + reads // SIZE * SIZE
    cut(whole_run, path, lines + rows)
    samples = Watched()
    batches(path, samples)
    assert samples.read[LOOKS:][: 12 - start] == ORDER[start:]
    assert content(path) == content(whole_run)
    assert [file.name for file in tmp_path.iterdir()] == ["run.jsonl"]


@pytest.mark.usefixtures("saved_after_each")
def test_single_images_may_be_continued_in_other_groups(tmp_path):
    """Those of an episodic method may then differ in the last bits, so they are not compared."""
    path, methods = tmp_path / "run.jsonl", {"TPT": "tpt", "TDA": "tda"}
    batches(tmp_path / "whole.jsonl", methods=methods, seeds=(0,))
    with pytest.raises(KeyboardInterrupt):
        batches(path, Watched(LOOKS + 7), methods=methods, seeds=(0,))
    cut(tmp_path / "whole.jsonl", path, 8)
    path.write_text(re.sub(r'("TPT": {"index": \d, "confidence": )[^,]*', r"\g<1>0.0", path.read_text()))
    assert {said["confidence"] for said in results(path, "TPT").values()} == {0.0}
    samples = Watched()
    batches(path, samples, methods=methods, seeds=(0,), batch_size=3)
    assert samples.read[LOOKS:] == ORDER[5:]
    assert results(path, "TDA") == results(tmp_path / "whole.jsonl", "TDA")


@pytest.mark.usefixtures("saved_after_each")
def test_rows_that_are_repeated_are_compared(whole_run, tmp_path, monkeypatch):
    path = tmp_path / "run.jsonl"
    cut(whole_run, path, 4)
    monkeypatch.setattr("tpt_lib.evaluation.run_checks.differing_data", lambda *_: {})
    with pytest.raises(ValueError, match=rf"sample {ORDER[1]} of seed 0 has a row .* can no longer be used"):
        batches(path, Noise(bad=[ORDER[1]]))
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([*lines[:2], lines[2].replace(b'"confidence": 0.', b'"confidence": 0.9'), *lines[3:]]))
    with pytest.raises(ValueError, match=rf"sample {ORDER[1]} of seed 0 has a row .* but 'TENT' now gives it 0\."):
        batches(path)


def without(*positions, size=SIZE):
    """The batches of the first seed without some positions."""
    return [
        [sample for sample in some if sample not in [ORDER[p] for p in positions]] for some in in_batches(ORDER, size)
    ]


LEFT_OUT = [(2, [6]), (4, [3, 6]), (99, [3, 6]), (1, [3, 6]), (3, [3, 6]), (7, [3]), (8, [3, 6]), (9, [3, 6])]


@pytest.mark.parametrize(("lines", "left_out"), slow_but(LEFT_OUT[:2], LEFT_OUT))
def test_an_image_that_cannot_be_read_is_left_out_of_its_batch(lines, left_out, tmp_path):
    """Its error is written before the results of its batch. After a kill it is tried again if there is none of these."""
    path, failing = tmp_path / "run.jsonl", {ORDER[3], ORDER[6]}
    batches(path, Watched(failing=failing), seeds=(0,))
    assert results(path) == plain_loop(without(3, 6))
    rows = content(path)[1:]
    assert [row["position"] for row in rows] == [3, 0, 1, 2, 4, 6, 5, 7, 8, 9, 10, 11]
    cut(path, path, lines)
    written = {row["sample"] for row in content(path)[1:]}
    batches(path, Watched(failing=failing - written), seeds=(0,))  # what has an error can be read again
    assert results(path) == plain_loop(without(*left_out))
    if left_out == [3, 6]:
        assert content(path)[1:] == rows


def failed_and_stopped(path, **options):
    """Evaluate with two failing images at the end of the second group, and stop after it."""
    with pytest.raises(KeyboardInterrupt):
        batches(path, Watched(LOOKS + 10, failing=ORDER[8:10]), seeds=(0,), **options)


@pytest.mark.usefixtures("saved_after_each")
def test_an_error_at_the_end_of_a_batch_is_not_tried_again(tmp_path):
    path, samples = tmp_path / "run.jsonl", Watched()
    failed_and_stopped(path)
    batches(path, samples, seeds=(0,))
    assert samples.read[LOOKS:] == ORDER[10:]
    assert results(path) == plain_loop(without(8, 9))


@pytest.mark.usefixtures("saved_after_each")
def test_an_error_at_the_end_of_a_group_of_single_images_is_tried_again(tmp_path):
    """From the state before the group."""
    path, samples = tmp_path / "run.jsonl", Watched()
    failed_and_stopped(path, methods="tda")
    batches(path, samples, methods="tda", seeds=(0,))
    assert samples.read[LOOKS:] == ORDER[5:]
    batches(tmp_path / "whole.jsonl", methods="tda", seeds=(0,))
    assert results(path, "TDA") == results(tmp_path / "whole.jsonl", "TDA")


def test_another_batch_size_is_another_run(whole_run, tmp_path):
    before = whole_run.read_bytes()
    with pytest.raises(ValueError, match=r"different settings \(settings\.stream\.batch_size is 5 there and 4 here\)"):
        batches(whole_run, batch_size=4)
    assert whole_run.read_bytes() == before
    report = batches(tmp_path / "run.jsonl", batch_size=4)
    assert results(tmp_path / "run.jsonl") != results(whole_run)
    with pytest.raises(
        ValueError, match=r"two runs of 'TENT' on noise differ in settings\.stream\.batch_size: 5 and 4"
    ):
        tpt_lib.Report.read([whole_run, tmp_path / "run.jsonl"])
    assert any("those that learn from batches got 4 at a time" in note for note in report.notes())


def test_one_view_is_made_and_none_is_encoded(tmp_path, monkeypatch):
    def refuse(*_):
        raise AssertionError

    monkeypatch.setattr("tpt_lib.evaluation.run.work.encode_views", refuse)
    report = batches(tmp_path / "run.jsonl", recipe=refuse)
    assert [row["errors"] for row in report.rows()] == [0]
    assert content(tmp_path / "run.jsonl")[0]["settings"]["views"]["n_views"] == 1


@functools.cache
def resnet():
    return fresh("open_clip-resnet")


@pytest.mark.parametrize(
    ("images", "ranks", "batch_size", "message"),
    [
        (12, 1, 1, "with batch_size=1 the last batch of 12 image(s) has 1; pass another batch_size, such as 2"),
        (13, 1, 4, "with batch_size=4 the last batch of 13 image(s) has 1; pass another batch_size, such as 5"),
        (1, 1, 4, "with batch_size=4 the last batch of 1 image(s) has 1; pass more images"),
        (7, 2, 3, "with batch_size=3 the last batch of 4 image(s) has 1; pass another batch_size, such as 4"),
        (9, 2, 4, "with batch_size=4 the last batch of 5 image(s) has 1; pass another batch_size, such as 5"),
        (3, 2, 2, "with batch_size=2 the last batch of 1 image(s) has 1; pass more images, or use fewer ranks"),
    ],
)
def test_batch_norms_need_two_images(images, ranks, batch_size, message, tmp_path, monkeypatch):
    as_rank(monkeypatch, 0, ranks)
    options = {
        "methods": ["zero_shot", "tda", "tent"],
        "streams": "per-rank",
        "model": resnet(),
        "batch_size": batch_size,
    }
    why = "evaluate: 'TENT' tunes batch norms, which need the statistics of 2 or more images, but "
    with pytest.raises(ValueError, match=f"^{re.escape(why + message)}$"):
        run(tmp_path / "run.jsonl", Noise(images), **options)
    assert list(tmp_path.iterdir()) == []


def test_layer_norms_need_one_image(tmp_path):
    batches(tmp_path / "run.jsonl", Noise(3), seeds=(0,), batch_size=2)
    assert results(tmp_path / "run.jsonl") == plain_loop(in_batches(shuffled_order(3, 0), 2))


def test_an_image_that_is_alone_in_its_batch_becomes_an_error_with_batch_norms(tmp_path):
    path, options = tmp_path / "run.jsonl", {"methods": "tent", "batch_size": 2, "model": resnet()}
    run(path, Watched(failing=[ORDER[3]]), **options)
    rows = {row["position"]: row for row in content(path)[1:]}
    assert rows[2]["error"] == "ValueError: a batch needs 2 or more images, but only 1 can be used"
    assert [i for i in rows if "error" in rows[i]] == [2, 3]
    assert results(path) == plain_loop([some for some in without(2, 3, size=2) if some], resnet())
    with pytest.raises(ValueError, match=rf"sample {ORDER[3]} cannot be used: OSError: stale file handle"):
        run(tmp_path / "strict.jsonl", Watched(failing=[ORDER[3]]), strict=True, **options)


def test_each_rank_has_batches_of_its_own(tmp_path, monkeypatch):
    path = tmp_path / "run.jsonl"
    for rank in (1, 0):
        as_rank(monkeypatch, rank, 2, lambda out, shares, rank=rank: rank or merge_run_files(shares, out))
        batches(path, seeds=(0,), batch_size=4, streams="per-rank")
    stream = content(path)[0]["settings"]["stream"]
    assert (stream["ranks"], stream["batch_size"]) == (2, 4)
    of_ranks = [in_batches([sample for sample in ORDER if sample % 2 == rank], 4) for rank in (0, 1)]
    assert results(path) == plain_loop(of_ranks[0]) | plain_loop(of_ranks[1])


@dataclass(frozen=True)
class Seen:
    images: torch.Tensor


def seen_method(returned, needs=("images",)):
    def step(model, prompts, state, images):
        return Seen(state.images + len(images)), returned(prompts, state, images)

    return OnlineMethod(lambda model, prompts: Seen(torch.zeros(())), step, needs=needs)


@pytest.mark.parametrize(("needs", "sizes"), [("images", [5, 5, 2]), ("views", [8] * 12)])
def test_a_method_of_ones_own_gets_what_it_needs(needs, sizes, tmp_path):
    seen = []

    def returned(prompts, state, given):
        seen.append((int(state.images), tuple(given.shape)))
        logits = given.mean(dim=(1, 2, 3))[:, None] * torch.arange(6.0)
        return tpt_lib.Prediction(prompts.names, logits if needs == "images" else logits[0])

    batches(tmp_path / "run.jsonl", methods={"mine": seen_method(returned, (needs,))}, seeds=(0,))
    assert seen == [(sum(sizes[:i]), (size, 3, 32, 32)) for i, size in enumerate(sizes)]


@pytest.mark.usefixtures("no_shape_checks")
def test_a_step_that_returns_something_else_is_named(tmp_path):
    mine = seen_method(lambda prompts, state, images: tpt_lib.Prediction(prompts.names, torch.zeros(6)))
    with pytest.raises(TypeError, match=r"mine: .* a Prediction of a batch of 5, but it returned one of shape \(6,\)$"):
        batches(tmp_path / "run.jsonl", methods={"mine": mine})
