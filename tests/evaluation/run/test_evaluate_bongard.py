"""Evaluations on Bongard problems: verdicts as rows, resumed runs, and what is refused."""

import functools

import pytest
from support.cases import problem_of
from support.noise_runs import OwnClip, assert_close, content, model

import tpt_lib
from tpt_lib import EvalSet, evaluate_bongard
from tpt_lib.methods.bongard import SIDES

METHODS = {"TPT": functools.partial(tpt_lib.bongard_tpt, steps=4), "prototype": "prototype"}


def problems_of(count, bad=()):
    made = [(*problem_of(seed, queries=2), SIDES) for seed in range(count)]
    return [(["no/such.png"], *p[1:]) if i in bad else p for i, p in enumerate(made)]


def run(out, count=5, bad=(), methods=METHODS, **options):
    return evaluate_bongard(model(), EvalSet("bongard", problems_of(count, bad), SIDES), methods, out=out, **options)


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    path = tmp_path_factory.mktemp("runs") / "run.jsonl"
    return path, run(path, seeds=(0, 1), batch_size=2)


def test_rows_are_the_verdicts(done):
    path, report = done
    header, *rows = content(path)
    assert (header["n"], header["methods"]) == (10, ["TPT", "prototype"])
    assert [(row["seed"], row["sample"]) for row in rows] == [(s, i) for s in (0, 1) for i in range(10)]
    for row in rows:
        problem, query = problems_of(5)[row["sample"] // 2], row["sample"] % 2
        assert row["truth"] == SIDES[query]
        want = {
            "TPT": tpt_lib.bongard_tpt(model(), *problem[:3], steps=4, seed=row["seed"]),
            "prototype": tpt_lib.bongard_prototype(model(), *problem[:3]),
        }
        for name, said in want.items():
            assert SIDES[row["methods"][name]["index"]] == said.verdicts[query]
            assert abs(row["methods"][name]["confidence"] - float(said.logits[query].softmax(0).max())) < 1e-4
    assert any(a["methods"]["TPT"] != b["methods"]["TPT"] for a, b in zip(rows[:10], rows[10:], strict=True))
    by_name = {said["method"]: said for said in report.rows()}
    right = [row["methods"]["prototype"]["index"] == SIDES.index(row["truth"]) for row in rows]
    assert by_name["prototype"]["n"] == 10
    assert by_name["prototype"]["top1"] == pytest.approx(100 * sum(right) / 20)


def test_a_missing_image_is_tried_again_and_a_refused_one_is_not(photo, tmp_path):
    pictures = [photo.resize((32, 32)).rotate(30 * i) for i in range(6)]
    files = [str(tmp_path / f"{i}.png") for i in range(3)]
    data = EvalSet("bongard", [([file], pictures[:3], pictures[3:5], SIDES) for file in files], SIDES)
    pictures[0].save(files[1])
    (tmp_path / "2.png").write_bytes(b"no image")

    def resume(name="run.jsonl", **options):
        return evaluate_bongard(model(), data, "prototype", out=tmp_path / name, **options).runs[0].rows

    assert [row["sample"] for row in resume() if "error" in row] == [0, 1, 4, 5]
    for file in files:
        pictures[0].save(file)
    assert [row["sample"] for row in resume() if "error" in row] == [4, 5]
    rows = resume(retry_errors=True)
    assert [row["sample"] for row in rows if "error" in row] == []
    assert len(content(tmp_path / "run.jsonl")) == 1 + 6 + 2 + 2
    assert [row["methods"] for row in rows] == [row["methods"] for row in resume("whole.jsonl")]


def test_rows_have_the_path_of_the_query(photo, tmp_path):
    photo.resize((32, 32)).save(tmp_path / "query.png")
    pictures = [photo.rotate(10 * i) for i in range(6)]
    problem = (pictures[:3], pictures[3:], [str(tmp_path / "query.png"), photo], SIDES)
    data = EvalSet("bongard", [problem], SIDES, root=str(tmp_path))
    evaluate_bongard(model(), data, "prototype", out=tmp_path / "run.jsonl")
    assert [row["path"] for row in content(tmp_path / "run.jsonl")[1:]] == ["query.png", None]


def test_a_run_cut_in_the_middle_of_a_problem_is_resumed(done, tmp_path):
    path, _ = done
    lines = path.read_bytes().splitlines(keepends=True)
    (tmp_path / "cut.jsonl").write_bytes(b"".join(lines[:5])[:-3])  # rows of queries 0, 1, 2 and a part of 3
    run(tmp_path / "cut.jsonl", seeds=(0, 1), batch_size=2)
    assert (tmp_path / "cut.jsonl").read_bytes().startswith(b"".join(lines[:4]))
    assert_close(tmp_path / "cut.jsonl", path)


def test_batches_change_nothing(done, tmp_path):
    run(tmp_path / "run.jsonl", seeds=(0, 1), batch_size=5)
    assert_close(tmp_path / "run.jsonl", done[0])


def test_methods_in_every_form(tmp_path):
    forms = {
        "prototype": ["prototype"],
        ("prototype",): ["prototype"],
        tpt_lib.bongard_prototype: ["bongard_prototype"],
    }
    for i, (methods, names) in enumerate(forms.items()):
        report = run(tmp_path / f"{i}.jsonl", 2, methods=methods)
        assert [row["method"] for row in report.rows()] == names
    report = run(tmp_path / "tpt.jsonl", 1, methods=["TPT", "prototype"])
    assert [row["method"] for row in report.rows()] == ["TPT", "prototype"]


def test_another_run_in_the_same_file_is_refused(done):
    before = done[0].read_bytes()
    with pytest.raises(ValueError, match=r"different settings \(.*settings\.methods\.TPT is .*steps=4.*steps=5"):
        run(done[0], methods={**METHODS, "TPT": functools.partial(tpt_lib.bongard_tpt, steps=5)}, seeds=(0, 1))
    assert done[0].read_bytes() == before


def test_problems_are_not_shared_out_to_ranks(tmp_path, monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(RuntimeError, match=r"one of 2 ranks, which would all write .*run\.jsonl"):
        run(tmp_path / "run.jsonl")
    assert not (tmp_path / "run.jsonl").exists()


def test_a_bad_image_is_the_error_of_all_queries_of_its_problem(tmp_path):
    report = run(tmp_path / "run.jsonl", bad=[1], batch_size=2)
    errors = [row for row in content(tmp_path / "run.jsonl")[1:] if "error" in row]
    assert [row["sample"] for row in errors] == [2, 3]
    assert "no/such.png" in errors[0]["error"]
    assert all(said["errors"] == 2 and said["n"] == 8 for said in report.rows())
    with pytest.raises((ValueError, OSError), match=r"no/such\.png"):
        run(tmp_path / "strict.jsonl", bad=[1], strict=True)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"methods": {}}, "evaluate_bongard: at least one method"),
        ({"methods": "tptt"}, "evaluate_bongard: there is no method 'tptt'; there are prototype, tpt"),
        ({"seeds": ()}, "evaluate_bongard: seeds must not be empty"),
        ({"seeds": (0, 0)}, r"evaluate_bongard: seeds must differ, but got \[0, 0\]"),
        ({"batch_size": 0}, "evaluate_bongard: batch_size must be at least 1, but got 0"),
    ],
)
def test_what_is_wrong_is_refused_before_the_file_is_touched(change, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        run(tmp_path / "run.jsonl", **change)
    assert not (tmp_path / "run.jsonl").exists()


def test_unknown_keywords_are_refused_before_the_file_is_touched(tmp_path):
    methods = {"TPT": functools.partial(tpt_lib.bongard_tpt, stepz=4)}
    with pytest.raises(TypeError, match=r"evaluate_bongard: 'TPT': unknown keyword 'stepz'; did you mean 'steps'\?"):
        run(tmp_path / "run.jsonl", methods=methods)
    assert not (tmp_path / "run.jsonl").exists()


def test_other_problems_of_the_same_name_are_refused(done):
    path, _ = done
    before = path.read_bytes()
    changed = [(*problem_of(seed, queries=2), SIDES) for seed in range(1, 6)]
    with pytest.raises(ValueError, match=r"different settings \(settings\.data\.digest is"):
        evaluate_bongard(model(), EvalSet("bongard", changed, SIDES), METHODS, out=path, seeds=(0, 1))
    assert path.read_bytes() == before


def test_a_model_that_cannot_be_seen_is_said_to_be_so(tmp_path):
    nameless = OwnClip()
    nameless.name = ""
    data = EvalSet("bongard", problems_of(1), SIDES)
    with pytest.warns(UserWarning, match="evaluate_bongard: this run cannot be resumed"):
        evaluate_bongard(nameless, data, "prototype", out=tmp_path / "run.jsonl")
    with pytest.raises(ValueError, match="exists and cannot be resumed"):
        evaluate_bongard(nameless, data, "prototype", out=tmp_path / "run.jsonl")


def test_a_sample_that_is_no_problem(tmp_path):
    data = EvalSet("bongard", [(1, 2, 3, ("yes",))], SIDES)
    with pytest.raises(ValueError, match=r"a problem is .positives, negatives, queries, truths."):
        evaluate_bongard(model(), data, "tpt", out=tmp_path / "run.jsonl")
    assert not (tmp_path / "run.jsonl").exists()
