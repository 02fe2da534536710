"""Evaluations: what they write, the forms of methods they take, and what they refuse before the file is touched."""

import functools
import json

import pytest
import torch
from support import rewards
from support.marking import slow_but
from support.noise_runs import METHODS, NAMES, Noise, assert_close, content, model, noise, run
from support.runs import refuse_to_write

import tpt_lib
from tpt_lib import EvalSet, evaluate, tpt_predict, zero_shot_predict
from tpt_lib.methods import MethodEntry, OnlineMethod, memo_clip_predict, prompt_ensemble_predict


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
        for name, method in {"zero-shot": zero_shot_predict, "TPT": tpt_predict}.items():
            want, got = method(model(), prompts, features), row["methods"][name]
            assert got["index"] == want.index
            assert abs(got["confidence"] - float(want.probs.max())) < 1e-5
            assert abs(got["entropy"] - float(want.entropy)) < 1e-5
            assert got["top5"] == [NAMES.index(n) for n, _ in want.top(5)]
        assert row["methods"]["zero-shot"]["confidence"] != row["methods"]["TPT"]["confidence"]
    seconds = json.loads(whole.read_text().splitlines()[1])["seconds"]
    assert set(seconds) == {"views", "features", "zero-shot", "TPT"}


def test_the_report_is_of_the_file_and_a_finished_run_is_only_read(whole, monkeypatch):
    before = whole.read_bytes()
    monkeypatch.setattr("tpt_lib.evaluation.run.work.Work.start", None)
    report = run(whole, seeds=(0, 1))
    assert whole.read_bytes() == before
    _, *rows = content(whole)
    assert [said["method"] for said in report.rows()] == list(METHODS)
    for said in report.rows():
        right = [row["methods"][said["method"]]["index"] == row["truth"] for row in rows]
        assert said["top1"] == pytest.approx(100 * sum(right) / len(right))


def test_a_finished_run_on_a_read_only_disk_is_read(whole, monkeypatch):
    refuse_to_write(monkeypatch)
    assert [said["n"] for said in run(whole, seeds=(0, 1)).rows()] == [12, 12]


@pytest.mark.parametrize("num_workers", slow_but([2], [1, 2]))
def test_workers_change_nothing(num_workers, whole, tmp_path):
    run(tmp_path / "run.jsonl", seeds=(0, 1), num_workers=num_workers)
    assert content(tmp_path / "run.jsonl") == content(whole)


@pytest.mark.parametrize("options", [{"batch_size": 5}, {"num_workers": 1, "batch_size": 4}])
def test_batches_change_nothing(options, whole, tmp_path):
    run(tmp_path / "run.jsonl", seeds=(0, 1), **options)
    assert_close(tmp_path / "run.jsonl", whole)


def test_the_callers_generator_is_not_drawn_from(tmp_path):
    before = torch.get_rng_state()
    run(tmp_path / "run.jsonl", Noise(2), num_workers=1)
    assert torch.equal(torch.get_rng_state(), before)


FORMS = [
    ["zero_shot", "tpt"], ("zero-shot", "TPT"), [zero_shot_predict, tpt_predict], {"zero-shot": "zero_shot", "TPT": "tpt"}
]  # fmt: skip


@pytest.mark.parametrize("methods", FORMS[:1] + [pytest.param(form, marks=pytest.mark.slow) for form in FORMS[1:]])
def test_methods_in_every_form(methods, whole, tmp_path):
    run(tmp_path / "run.jsonl", methods=methods, seeds=(0, 1))
    assert content(tmp_path / "run.jsonl") == content(whole)


def test_one_method_by_name(whole, tmp_path):
    run(tmp_path / "run.jsonl", methods="tpt", seeds=(0, 1))
    header, *rows = content(tmp_path / "run.jsonl")
    assert header["methods"] == ["TPT"]
    assert [row["methods"]["TPT"] for row in rows] == [row["methods"]["TPT"] for row in content(whole)[1:]]


def brightest(model, prompts, views):
    assert views.shape == (8, 3, 32, 32)
    return tpt_lib.Prediction(prompts.names, views[0].mean() * torch.arange(6.0))


def test_methods_that_need_views_and_methods_with_prompts_of_their_own(tmp_path):
    coop = tpt_lib.class_prompts(model(), NAMES, context=tpt_lib.gaussian_context(model(), 4))
    methods = {
        "views": MethodEntry("brightest", "brightest", brightest, needs=("views",)),
        "image tower": functools.partial(memo_clip_predict, group="image"),
        "coop": ("zero_shot", coop),
        "both": (prompt_ensemble_predict, [coop, coop]),
        "plain": "zero_shot",
    }
    run(tmp_path / "run.jsonl", Noise(3), methods=methods, batch_size=2)
    prompts = tpt_lib.class_prompts(model(), NAMES)
    for row in content(tmp_path / "run.jsonl")[1:]:
        views = tpt_lib.augment_views(Noise()[row["sample"]][0], model().image_spec, n_views=8)
        features = tpt_lib.encode_views(model(), views)
        want = {
            "views": brightest(model(), prompts, views),
            "image tower": memo_clip_predict(model(), prompts, views, group="image"),
            "coop": zero_shot_predict(model(), coop, features),
            "both": zero_shot_predict(model(), coop, features),
            "plain": zero_shot_predict(model(), prompts, features),
        }
        for name, said in want.items():
            assert abs(row["methods"][name]["confidence"] - float(said.probs.max())) < 1e-5, name
            assert row["methods"][name]["index"] == said.index, name
        assert row["methods"]["coop"]["confidence"] != row["methods"]["plain"]["confidence"]


def test_the_template_and_the_recipe_are_the_datasets(tmp_path):
    data = EvalSet("noise", Noise(2), NAMES, template="a sketch of the {}.", recipe="augmix")
    evaluate(model(), data, "view_average", out=tmp_path / "run.jsonl", n_views=4, num_workers=0)
    header, first, _ = content(tmp_path / "run.jsonl")
    assert header["settings"]["views"]["recipe"] == "augmix"
    prompts = tpt_lib.class_prompts(model(), NAMES, template="a sketch of the {}.")
    views = tpt_lib.augment_views(Noise()[0][0], model().image_spec, n_views=4, recipe="augmix")
    want = tpt_lib.average_predict(model(), prompts, tpt_lib.encode_views(model(), views))
    assert abs(first["methods"]["averaged prediction"]["confidence"] - float(want.probs.max())) < 1e-5
    crops = evaluate(
        model(), data, "view_average", out=tmp_path / "crop.jsonl", n_views=4, recipe="crop", num_workers=0
    )
    assert crops.runs[0].header["settings"]["views"]["recipe"] == "crop"


online = OnlineMethod(init=lambda model, prompts: 0, step=lambda model, prompts, state, features: (state, None))
reward = MethodEntry("rlcf", "RLCF", tpt_predict, needs=("features", "reward"))


@pytest.mark.parametrize(
    ("change", "kind", "message"),
    [
        ({"n_view": 4}, TypeError, "evaluate: unknown keyword 'n_view'; did you mean 'n_views'?"),
        ({"seed": 1}, TypeError, r"evaluate: pass the seeds of the views as seeds=\[0, 1, …\], not as seed="),
        ({"n_views": 0}, ValueError, "n_views must be an int of at least 1"),
        ({"methods": {}}, ValueError, "evaluate: methods is empty; pass one or more"),
        ({"methods": "tpd"}, ValueError, "there is no method 'tpd'; did you mean 'tp[st]'. There are .*tpt"),
        ({"methods": ["tpt", tpt_predict]}, ValueError, "evaluate: two methods have the same name; pass a dict"),
        ({"methods": {"TDA": online}}, TypeError, "evaluate: 'TDA': a state must be a dataclass of tensors, but it is a int"),
        ({"methods": {"RLCF": reward}}, ValueError, "evaluate: 'RLCF' needs a reward; pass reward="),
        ({"seeds": ()}, ValueError, "evaluate: seeds must not be empty"),
        ({"seeds": (1, 1)}, ValueError, r"evaluate: seeds must differ, but got \[1, 1\]"),
        ({"batch_size": 0}, ValueError, "evaluate: batch_size must be at least 1, but got 0"),
        ({"num_workers": -1}, ValueError, "evaluate: num_workers must be 0 or more, but got -1"),
        ({"backend": "slurm"}, ValueError, "evaluate: backend must be one of local, ray, but got 'slurm'"),
        ({"prompts": ["cat"]}, ValueError, "evaluate: the prompts have 1 classes and the dataset has 6"),
        ({"methods": {"CoOp": ["cat"]}}, ValueError, "evaluate: the prompts of 'CoOp' have 1 classes and the dataset has 6"),
        ({"prompts": ["cat", "hen"]}, ValueError, "6: class 1 is 'hen' in the prompts and 'dog' in the dataset"),
        ({"prompts": [*NAMES, "owl"]}, ValueError, "6: class 6 is 'owl' in the prompts and missing in the dataset"),
        ({"prompts": NAMES[::-1]}, ValueError, "the prompts have .* another order: class 0 is 'ant' and should be 'cat'"),
        ({"methods": {"CoOp": NAMES[::-1]}}, ValueError, "prompts of 'CoOp' have the classes of the dataset in another order"),
        ({"methods": {"TPT": functools.partial(tpt_predict, n_veiws=4)}}, TypeError, "'TPT': unknown keyword 'n_veiws'"),
        ({"methods": functools.partial(tpt_predict, stepz=4)}, TypeError, "'stepz'; did you mean 'steps'?"),
        ({"methods": {"none": {}}}, TypeError, "a method must be a name, a function"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_refused_before_the_file_is_touched(change, kind, message, tmp_path, no_shape_checks):
    if "prompts" in change:
        change = {"prompts": tpt_lib.class_prompts(model(), change["prompts"])}
    if isinstance(change.get("methods"), dict) and "CoOp" in change["methods"]:
        change = {"methods": {"CoOp": ("zero_shot", tpt_lib.class_prompts(model(), change["methods"]["CoOp"]))}}
    with pytest.raises(kind, match=message):
        run(tmp_path / "run.jsonl", Noise(2), **change)
    assert not (tmp_path / "run.jsonl").exists()


def test_names_may_be_replaced_by_better_ones(tmp_path):
    better = tpt_lib.class_prompts(model(), ("tabby cat", "dog", "red_panda", "Kite", "hen", "ant"))
    run(tmp_path / "run.jsonl", Noise(2), methods={"plain": "zero_shot", "own": ("zero_shot", better)}, prompts=better)


def test_the_classes_of_several_prompts_are_checked(tmp_path):
    prompts = [tpt_lib.class_prompts(model(), names) for names in (NAMES, NAMES[::-1])]
    with pytest.raises(ValueError, match="the prompts of 'both' have the classes of the dataset in another order"):
        run(tmp_path / "run.jsonl", Noise(2), methods={"both": (prompt_ensemble_predict, prompts)})


def test_keywords_are_refused_before_any_work(whole, monkeypatch):
    def refuse(*_, **__):
        raise AssertionError("prompts were made")

    before = whole.read_bytes()
    monkeypatch.setitem(evaluate.__globals__, "class_prompts", refuse)
    for wrong in ({"n_view": 4}, {"seed": 0}, {"views": 64}, {"workers": 2}, {"batch": 2}):
        with pytest.raises(TypeError, match=next(iter(wrong))):
            evaluate(model(), noise(), METHODS, out=whole, **wrong)
    assert whole.read_bytes() == before


def test_a_method_that_returns_something_else(tmp_path):
    with pytest.raises(TypeError, match="odd: a method must return a Prediction of one image, but it returned int"):
        run(tmp_path / "run.jsonl", Noise(2), methods={"odd": lambda model, prompts, features: 3})


def test_a_method_for_one_image_says_what_to_do_in_a_batch(tmp_path):
    def first_only(model, prompts, features):
        return zero_shot_predict(model, prompts, features.reshape(-1, *features.shape[-2:])[0])

    with pytest.raises(TypeError, match=r"a Prediction of a batch of 2, .* needs batch_size=1"):
        run(tmp_path / "run.jsonl", Noise(2), methods={"odd": first_only}, batch_size=2)
    assert len(run(tmp_path / "other.jsonl", Noise(2), methods={"odd": first_only}).rows()) == 1


def settings_of(path):
    return content(path)[0]["settings"]


def test_a_reward_is_given_computed_and_recorded(tmp_path):
    """In workers and in batches as in this process."""
    one, other = tmp_path / "one.jsonl", tmp_path / "other.jsonl"
    run(one, Noise(3), "rlcf", reward=rewards.pair(NAMES))
    run(other, Noise(3), "rlcf", reward=rewards.pair(NAMES), num_workers=1, batch_size=2)
    assert_close(one, other)
    prompts, (_, *rows) = tpt_lib.class_prompts(model(), NAMES), content(one)
    for row in rows:
        image, _ = Noise()[row["sample"]]
        features = tpt_lib.encode_views(model(), tpt_lib.augment_views(image, model().image_spec, n_views=8))
        reward = rewards.by_hand(image, NAMES, n_views=8)
        want = tpt_lib.methods.rlcf_predict(model(), prompts, features, reward=reward)
        assert abs(row["methods"]["RLCF"]["confidence"] - float(want.probs.max())) < 1e-3
    assert json.loads(one.read_text().splitlines()[1])["seconds"].keys() == {"views", "features", "reward", "RLCF"}
    (recorded,) = settings_of(one)["reward"]
    assert recorded.keys() >= {"model", "image_tower", "text_tower", "prompts"}
    assert recorded["image_tower"] != settings_of(one)["image_tower"]
    second, _ = rewards.pair(NAMES)
    with pytest.raises(ValueError, match="reward"):
        run(one, Noise(3), "rlcf", reward=(second, tpt_lib.class_prompts(second, NAMES)))
    with pytest.raises(ValueError, match="evaluate: 'RLCF' needs a reward"):
        run(tmp_path / "none.jsonl", Noise(3), "rlcf")


def test_a_preset_is_asked_for_and_recorded(tmp_path):
    def evaluated(file, name, **options):
        data = EvalSet(name, Noise(2), NAMES)
        return evaluate(
            model(), data, {"C": "ctpt", "T": "tpt"}, out=tmp_path / file, n_views=8, num_workers=0, **options
        )

    evaluated("plain.jsonl", "imagenet-a")
    own = evaluated("own.jsonl", "imagenet-a", preset="dataset")
    evaluated("named.jsonl", "noise", preset="imagenet-a")
    plain, asked, named = (settings_of(tmp_path / f"{file}.jsonl") for file in ("plain", "own", "named"))
    assert "preset" not in plain, "a dataset's name alone changes nothing"
    assert "ctpt_predict on" in plain["methods"]["C"]
    assert asked["preset"] == named["preset"] == "imagenet-a"
    assert "ctpt_predict(weight=20.0)" in asked["methods"]["C"]
    assert asked["methods"] == named["methods"]
    note = "imagenet-a: settings of the methods' authors for imagenet-a: C weight=20.0; T defaults"
    assert note in own.notes()
    with pytest.raises(ValueError, match="have no settings for 'noise', only for imagenet"):
        evaluated("other.jsonl", "noise", preset="dataset")
    assert not (tmp_path / "other.jsonl").exists()


def test_the_calibration_of_votes_is_left_empty(tmp_path):
    report = run(tmp_path / "run.jsonl", Noise(4), {"Z": "zero", "vote": "view_vote", "T": "tpt"})
    assert settings_of(tmp_path / "run.jsonl")["not_probabilities"] == ["Z", "vote"]
    assert [row["ece15"] is None for row in report.rows()] == [True, True, False]
    assert [row["ece20"] is None for row in report.rows()] == [True, True, False]
    assert all(row["top1"] is not None for row in report.rows())
