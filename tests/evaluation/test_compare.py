"""Tables of methods: their rows are what the methods say, from one encoding of the views."""

import functools
import importlib
import math

import pytest
import torch
import torch.utils.data
from support import rewards
from support.cases import state
from support.comparisons import NAMES, cocoop, coop, features_of, images_of, setting

import tpt_lib
from tpt_lib import average_predict, compare, memo_clip_predict, tpt_predict, zero_shot_predict
from tpt_lib.methods import MethodEntry, prompt_ensemble_predict

MODULE = importlib.import_module("tpt_lib.evaluation.compare")  # tpt_lib.evaluation.compare is the function
FEW = {"zero-shot": "zero_shot", "averaged": average_predict, "TPT": "tpt"}
FUNCTIONS = {"zero-shot": zero_shot_predict, "averaged": average_predict, "TPT": tpt_predict}


def test_rows_are_what_the_methods_say():
    model, prompts = setting()
    labels = [2, 0, 1]
    table = compare(model, images_of(), prompts, labels=labels, methods=FEW, n_views=6)
    assert table.column("method") == list(FEW)
    for row, method in zip(table.rows, FUNCTIONS.values(), strict=True):
        found = [method(model, prompts, features_of(image)) for image in images_of()]
        right = sum(one.index == label for one, label in zip(found, labels, strict=True))
        assert row["accuracy"] == right / 3
        assert row["entropy"] == pytest.approx(float(sum(one.entropy for one in found)) / 3, rel=1e-3)
        assert row["seconds"] > 0
        assert row["first"] > 0
    assert len({round(row["entropy"], 3) for row in table.rows}) == 3
    assert table.shared.keys() == {"views", "features"}
    assert min(table.shared.values()) > 0
    assert table.swept is None
    assert "Over 3 image(s)" in table.note


def test_class_names_are_enough():
    model, prompts = setting()
    by_names = compare(model, images_of()[0], NAMES, methods="tpt", n_views=4)
    by_prompts = compare(model, images_of()[0], prompts, methods="tpt", n_views=4)
    assert by_names.column("entropy") == by_prompts.column("entropy")
    other = tpt_lib.class_prompts(model, NAMES, template="a sketch of the {}.")
    assert compare(model, images_of()[0], other, methods="tpt", n_views=4).column("entropy") != by_names.column(
        "entropy"
    )


def test_labels_of_every_kind():
    model, prompts = setting()
    found = [zero_shot_predict(model, prompts, features_of(image)).index for image in images_of()]
    wrong = [(found[0] + 1) % 3, *found[1:]]
    pairs = list(zip(images_of(), wrong, strict=True))
    ways = [
        (images_of(), wrong),
        (list(images_of()), [NAMES[i] for i in wrong]),
        (tuple(images_of()), torch.tensor(wrong)),
        (pairs, None),
        (torch.utils.data.TensorDataset(images_of(), torch.tensor(wrong)), None),
    ]
    for images, labels in ways:
        table = compare(model, images, prompts, labels=labels, methods="zero_shot", n_views=2)
        assert table.column("accuracy") == [2 / 3]
    one = compare(model, images_of()[0], prompts, labels=found[0], methods="zero_shot", n_views=2)
    assert (one.rows[0]["accuracy"], one.rows[0]["label"]) == (1.0, NAMES[found[0]])
    none = compare(model, images_of()[0], prompts, methods="zero_shot", n_views=2)
    assert none.column("accuracy") == [None]
    assert none.rows[0]["seconds"] == none.rows[0]["first"]


def test_labels_given_apart_replace_those_of_pairs():
    model, prompts = setting()
    found = [zero_shot_predict(model, prompts, features_of(image)).index for image in images_of()]
    pairs = [(image, (index + 1) % 3) for image, index in zip(images_of(), found, strict=True)]
    table = compare(model, pairs, prompts, labels=found, methods="zero_shot", n_views=2)
    assert table.column("accuracy") == [1.0]


def test_views_and_features_are_made_once(monkeypatch):
    model, prompts = setting()
    calls = {"augment_views": [], "encode_views": []}
    for name, of_name in calls.items():
        real = getattr(tpt_lib, name)
        monkeypatch.setattr(
            MODULE,
            name,
            lambda *a, real=real, of_name=of_name, **k: of_name.append(1) or real(*a, **k),
        )
    compare(model, images_of(), prompts, methods={**FEW, **{str(i): tpt_predict for i in range(3)}}, n_views=6)
    assert {name: len(of_name) for name, of_name in calls.items()} == {"augment_views": 3, "encode_views": 3}


def test_methods_that_need_views_and_methods_with_prompts_of_their_own():
    model, prompts = setting()
    image, views = images_of()[0], {"n_views": 6, "seed": 4, "recipe": "augmix"}
    seen = {}

    def mine(model, prompts, given):
        seen["views"] = given
        return zero_shot_predict(model, prompts, tpt_lib.encode_views(model, given))

    methods = {
        "mine": MethodEntry("mine", "mine", mine, needs=("views",)),
        "image tower": functools.partial(functools.partial(memo_clip_predict, group="image"), lr=1e-3),
        "CoOp": (zero_shot_predict, coop()),
        "CoOp + CoCoOp": (prompt_ensemble_predict, [coop(), cocoop()]),
    }
    table = compare(model, image, prompts, methods=methods, **views)
    made = tpt_lib.augment_views(image, model.image_spec, **views)
    assert torch.equal(seen["views"], made)
    features = tpt_lib.encode_views(model, made)
    want = [
        zero_shot_predict(model, prompts, features),
        memo_clip_predict(model, prompts, made, group="image", lr=1e-3),
        zero_shot_predict(model, coop(), features),
        prompt_ensemble_predict(model, [coop(), cocoop()], features),
    ]
    assert table.column("label") == [one.label for one in want]
    assert table.column("entropy") == pytest.approx([float(one.entropy) for one in want], abs=1e-4, rel=1e-4)
    assert len(set(table.column("entropy"))) == 4


def test_a_method_that_writes_into_its_features_changes_no_other():
    def overwrite(model, prompts, features):
        return zero_shot_predict(model, prompts, features.copy_(features.flip(-1)))

    model, prompts = setting()
    methods = {"overwrite": overwrite, "zero-shot": "zero_shot"}
    found = compare(model, images_of(), prompts, methods=methods, n_views=2).column("entropy")
    want = compare(model, images_of(), prompts, methods="zero_shot", n_views=2).column("entropy")
    assert found[1:] == want
    assert found[0] != want[0]


def test_methods_by_name_function_and_title():
    model, prompts = setting()
    default = compare(model, images_of()[0], prompts, n_views=4)
    titles = ["zero-shot", "template ensemble", "averaged prediction", "majority vote", "TPT"]
    assert default.column("method") == titles
    mixed = compare(model, images_of()[0], prompts, methods=["zero-shot", "Majority Vote", tpt_predict], n_views=4)
    assert mixed.column("method") == ["zero-shot", "majority vote", "TPT"]
    by_title = dict(zip(titles, default.column("entropy"), strict=True))
    assert mixed.column("entropy") == [by_title[title] for title in mixed.column("method")]


def test_where_memory_cannot_be_told(monkeypatch):
    def refuse(*_):
        raise OSError

    monkeypatch.setattr("pathlib.Path.write_text", refuse)
    table = compare(*setting()[:1], images_of()[0], NAMES, methods=FEW, n_views=2)
    assert table.column("memory") == [None] * 3
    assert "memory unknown" in table.note


def test_the_model_is_untouched():
    model, prompts = setting()
    before = state(model.module)
    compare(model, images_of()[0], prompts, methods=["zero_shot", "tpt", "memo_clip"], n_views=3)
    assert state(model.module) == before


@pytest.mark.usefixtures("no_shape_checks")
@pytest.mark.parametrize(("images", "labels", "options", "kind", "message"), [
    (images_of(), [0, 1], {}, ValueError, "compare: there are 3 images and 2 labels; pass one label for each image"),
    (images_of()[0], [0, 1], {}, ValueError, "compare: there are 1 images and 2 labels"),
    (images_of(), [0, 0.7, 1], {}, ValueError, "compare: a label is the index of a class, 0 to 2, .* but got 0.7"),
    (images_of(), torch.tensor([0.0, 1.0, 2.0]), {}, ValueError, "a label is the index of a class, .* but got tensor"),
    (images_of(), [0, 1, 3], {}, ValueError, "the index of a class, 0 to 2, or one of their names, but got 3"),
    (images_of(), [0, 1, -1], {}, ValueError, "or one of their names, but got -1"),
    (images_of(), ["cat", "cow", "dog"], {}, ValueError, "or one of their names, but got 'cow'"),
    ([], None, {}, ValueError, "compare: there are no images"),
    (images_of(), None, {"methods": {}}, ValueError, "compare: methods is empty; pass one or more"),
    (images_of(), None, {"methods": ["tpt", tpt_predict]}, ValueError, "compare: two methods have the same name; pass a dict"),
    (images_of(), None, {"methods": "tpd"}, ValueError, "there is no method 'tpd'; did you mean 'tp[st]'. There are .*tpt"),
    (images_of(), None, {"methods": {"x": lambda *_: 3}}, TypeError, "x: a method must return a Prediction .* it returned int"),
    (images_of(), None, {"n_views": 0}, ValueError, "n_views must be an int of at least 1"),
    (images_of(), None, {"n_view": 4}, TypeError, "compare: unknown keyword 'n_view'; did you mean 'n_views'?"),
])  # fmt: skip
def test_bad_input(images, labels, options, kind, message):
    model, prompts = setting()
    with pytest.raises(kind, match=message):
        compare(model, images, prompts, labels=labels, **{"methods": FEW, "n_views": 2, **options})


def test_labels_are_checked_before_any_work(monkeypatch):
    model, prompts = setting()

    def refuse(*_, **__):
        raise AssertionError("views were made")

    monkeypatch.setattr(MODULE, "augment_views", refuse)
    for labels in ([0, 1], [0, 1, 3]):
        with pytest.raises(ValueError, match="label"):
            compare(model, images_of(), prompts, labels=labels, methods=FEW, n_views=2)


def test_entropies_are_means_in_nats():
    model, prompts = setting()

    def uniform(model, prompts, features):
        return tpt_lib.Prediction(prompts.names, torch.zeros(*features.shape[:-2], len(prompts.names)))

    table = compare(model, images_of(), prompts, methods={"uniform": uniform}, n_views=2)
    assert table.column("entropy") == pytest.approx([math.log(3)])


def test_a_reward_is_computed_once_per_image(monkeypatch):
    model, prompts = setting()
    judged, sums = [], []
    similarities = tpt_lib.methods.reward.similarities
    monkeypatch.setattr(
        tpt_lib.methods.reward, "similarities", lambda *given: judged.append(similarities(*given)) or judged[-1]
    )

    def seen(model, prompts, features, *, reward):
        sums.append(reward[0].sum())
        return zero_shot_predict(model, prompts, features)

    methods = {"RLCF": "rlcf", "seen": MethodEntry("seen", "seen", seen, needs=("features", "reward")), "TPT": "tpt"}
    table = compare(model, images_of(), prompts, methods=methods, reward=rewards.pair(NAMES), n_views=6)
    assert len(judged) == 3
    assert list(table.shared) == ["views", "features", "reward"]
    assert "reward" in table.note
    for image, total in zip(images_of(), sums, strict=True):
        torch.testing.assert_close(total, rewards.by_hand(image, NAMES, n_views=6).sum(), atol=1e-4, rtol=1e-4)
    want = [
        tpt_lib.methods.rlcf_predict(
            model, prompts, features_of(image), reward=rewards.by_hand(image, NAMES, n_views=6)
        )
        for image in images_of()
    ]
    assert table.rows[0]["entropy"] == pytest.approx(float(sum(one.entropy for one in want)) / 3, rel=1e-2)


def test_a_preset_is_for_all_methods():
    model, prompts = setting()
    options = {"methods": {"C-TPT": "ctpt", "TPT": "tpt"}, "n_views": 6}
    here, there = (compare(model, images_of(), prompts, preset=p, **options) for p in (None, "imagenet-a"))
    assert here.rows[0]["entropy"] != there.rows[0]["entropy"]
    assert here.rows[1]["entropy"] == there.rows[1]["entropy"]
