"""Tables of methods, sweeps and budgets: what stands in them is what the methods say, from one encoding."""

import functools
import json
import math

import pytest
import torch
import torch.utils.data
from support.cases import meta_net, state
from support.zoo import fresh

import tpt_lib
from tpt_lib import average_predict, class_prompts, compare, memo_clip_predict, tables, tpt_predict, zero_shot_predict
from tpt_lib.methods import prompt_ensemble_predict
from tpt_lib.paper import budget_table, strategy_table, sweep_fractions, sweep_groups, sweep_steps, sweep_views
from tpt_lib.plots import plot_sweep
from tpt_lib.prompts.contexts import LearnedPrompt

NAMES = ["cat", "red panda", "dog"]
FEW = {"zero-shot": zero_shot_predict, "averaged": average_predict, "TPT": tpt_predict}


@functools.cache
def setting():
    model = fresh("open_clip-vit")
    with torch.no_grad():
        model.module.logit_scale.fill_(math.log(100))
    return model, class_prompts(model, NAMES)


def images_of(number=3):
    return torch.randint(256, (number, 3, 40, 60), dtype=torch.uint8, generator=torch.Generator().manual_seed(1))


def features_of(image, **options):
    model, _ = setting()
    return tpt_lib.encode_views(model, tpt_lib.augment_views(image, model.image_spec, **{"n_views": 6, **options}))


def coop():
    return class_prompts(setting()[0], NAMES, context=tpt_lib.gaussian_context(setting()[0], 4, sigma=1.0))


def cocoop():
    learned = LearnedPrompt(tpt_lib.gaussian_context(setting()[0], 4, sigma=1.0), meta_net())
    return class_prompts(setting()[0], NAMES, context=learned)


def test_the_table_holds_what_the_methods_say():
    model, prompts = setting()
    labels = [2, 0, 1]
    table = compare(model, prompts, images_of(), labels, methods=FEW, n_views=6)
    assert table.column("method") == list(FEW)
    for row, method in zip(table.rows, FEW.values(), strict=True):
        found = [method(model, prompts, features_of(image)) for image in images_of()]
        right = sum(one.index == label for one, label in zip(found, labels, strict=True))
        assert row["accuracy"] == right / 3
        assert math.isclose(row["entropy"], sum(one.entropy for one in found) / 3, rel_tol=1e-3)
        assert row["seconds"] > 0
        assert row["first"] > 0
    assert table.shared.keys() == {"views", "features"}
    assert min(table.shared.values()) > 0
    assert table.swept is None
    assert "Over 3 image(s)" in table.note


def test_labels_of_every_kind():
    model, prompts = setting()
    found = [zero_shot_predict(model, prompts, features_of(image)).index for image in images_of()]
    wrong = [(found[0] + 1) % 3, *found[1:]]
    pairs = [(image, label) for image, label in zip(images_of(), wrong, strict=True)]
    ways = [
        (images_of(), wrong),
        (list(images_of()), [NAMES[i] for i in wrong]),
        (tuple(images_of()), torch.tensor(wrong)),
        (pairs, None),
        (torch.utils.data.TensorDataset(images_of(), torch.tensor(wrong)), None),
    ]
    for images, labels in ways:
        table = compare(model, prompts, images, labels, methods={"zero-shot": zero_shot_predict}, n_views=2)
        assert table.column("accuracy") == [2 / 3]
    one = compare(model, prompts, images_of()[0], found[0], methods={"zero-shot": zero_shot_predict}, n_views=2)
    assert (one.rows[0]["accuracy"], one.rows[0]["label"]) == (1.0, NAMES[found[0]])
    none = compare(model, prompts, images_of()[0], methods={"zero-shot": zero_shot_predict}, n_views=2)
    assert none.column("accuracy") == [None]
    assert none.rows[0]["seconds"] == none.rows[0]["first"]


def test_views_and_features_are_made_once(monkeypatch):
    model, prompts = setting()
    calls = {"augment_views": [], "encode_views": []}
    for name, of_name in calls.items():
        real = getattr(tpt_lib, name)
        monkeypatch.setattr(
            f"tpt_lib.evaluation.compare.{name}",
            lambda *a, real=real, of_name=of_name, **k: of_name.append(1) or real(*a, **k),
        )
    compare(model, prompts, images_of(), methods={**FEW, **{str(i): tpt_predict for i in range(3)}}, n_views=6)
    assert {name: len(of_name) for name, of_name in calls.items()} == {"augment_views": 3, "encode_views": 3}


def test_methods_that_take_views_and_methods_with_prompts_of_their_own():
    model, prompts = setting()
    image, views = images_of()[0], {"n_views": 6, "seed": 4, "recipe": "augmix"}
    seen = {}

    def mine(model, prompts, given):
        seen["views"] = given
        return zero_shot_predict(model, prompts, tpt_lib.encode_views(model, given))

    mine.takes_views = True
    methods = {
        "mine": functools.partial(mine),
        "image tower": functools.partial(functools.partial(memo_clip_predict, group="image"), lr=1e-3),
        "CoOp": (zero_shot_predict, coop()),
        "CoOp + CoCoOp": (prompt_ensemble_predict, [coop(), cocoop()]),
    }
    table = compare(model, prompts, image, methods=methods, **views)
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
    torch.testing.assert_close(table.column("entropy"), [one.entropy for one in want], atol=1e-4, rtol=1e-4)


def test_the_default_methods():
    model, prompts = setting()
    table = compare(model, prompts, images_of()[0], n_views=4)
    assert table.column("method") == ["zero-shot", "80 templates", "averaged", "majority vote", "TPT"]


def test_the_model_is_untouched():
    model, prompts = setting()
    before = state(model.module)
    sweep_groups(model, prompts, images_of()[0], [0], steps=[1], n_views=3)
    assert state(model.module) == before


@pytest.mark.parametrize(("sweep", "column", "options", "method"), [
    (sweep_fractions, "fraction", {"fractions": [0.2, 0.5, 1.0], "n_views": 6},
     lambda f: {"select": functools.partial(tpt_lib.select_confident, fraction=f)}),
    (sweep_steps, "steps", {"steps": [1, 3], "n_views": 6}, lambda n: {"steps": n}),
    (sweep_views, "views", {"numbers": [2, 6]}, None),
])  # fmt: skip
def test_sweeps(sweep, column, options, method):
    model, prompts = setting()
    table = sweep(model, prompts, images_of(2), [0, 1], **options)
    values = options.get("fractions") or options.get("steps") or options.get("numbers")
    assert table.column(column) == [None, *values]
    assert table.swept == column
    assert table.column("method") == ["zero-shot", *["TPT"] * len(values)]
    for row in table.rows:
        value, found = row[column], []
        for image in images_of(2):
            features = features_of(image)
            if value is None:
                found.append(zero_shot_predict(model, prompts, features))
            elif method is None:
                found.append(tpt_predict(model, prompts, features[:value]))
            else:
                found.append(tpt_predict(model, prompts, features, **method(value)))
        assert row["accuracy"] == sum(one.index == i for i, one in enumerate(found)) / 2
        assert math.isclose(row["entropy"], sum(one.entropy for one in found) / 2, rel_tol=1e-2, abs_tol=1e-4)


def test_the_sweep_of_groups():
    model, prompts = setting()
    rates = {"prompt": [5e-3], "text": [1e-3, 1e-2], "image": [1e-3], "all": [1e-3]}
    table = sweep_groups(model, prompts, images_of()[0], [1], rates=rates, steps=[1, 2], n_views=4)
    assert [tuple(row[c] for c in ("group", "lr", "steps")) for row in table.rows] == [
        (None, None, None), ("prompt", 5e-3, 1), ("prompt", 5e-3, 2), ("text", 1e-3, 1), ("text", 1e-3, 2),
        ("text", 1e-2, 1), ("text", 1e-2, 2), ("image", 1e-3, 1), ("image", 1e-3, 2), ("all", 1e-3, 1), ("all", 1e-3, 2),
    ]  # fmt: skip
    made = tpt_lib.augment_views(images_of()[0], model.image_spec, n_views=4, recipe="augmix")
    for row in table.rows[1:]:
        found = memo_clip_predict(model, prompts, made, group=row["group"], lr=row["lr"], steps=row["steps"])
        assert math.isclose(row["entropy"], found.entropy, rel_tol=1e-2, abs_tol=1e-4)
        assert len(found.selected) == 4


# tables

TABLE = tpt_lib.evaluation.Table(
    ({"method": "zero-shot", "steps": None, "accuracy": 0.5, "ok": True},
     {"method": "TPT", "steps": 12, "accuracy": 0.66666, "ok": False}),
    note="A note.",
)  # fmt: skip


def test_a_table_prints_itself():
    assert repr(TABLE) == (
        "method     steps  accuracy   ok\n"
        "-------------------------------\n"
        "zero-shot      -       0.5  yes\n"
        "TPT           12     0.667   no\n"
        "A note."
    )
    assert (
        TABLE.to_markdown()
        == TABLE._repr_markdown_()
        == (
            "| method | steps | accuracy | ok |\n"
            "| --- | ---: | ---: | ---: |\n"
            "| zero-shot | - | 0.5 | yes |\n"
            "| TPT | 12 | 0.667 | no |\n"
            "\nA note."
        )
    )
    assert json.loads(json.dumps(TABLE.to_dict()))["rows"][1] == TABLE.rows[1]
    assert TABLE.column("steps") == [None, 12]
    assert TABLE.columns == ["method", "steps", "accuracy", "ok"]


def test_measuring():
    cpu = torch.device("cpu")
    for _ in range(2):
        result, cost = tables.measured(lambda: float(torch.ones(64 * 2**18).sum()), cpu)
        assert result == 64 * 2**18
        assert cost.memory is None or 60 < cost.memory < 80
        assert 0 < cost.seconds < 10
    assert tables.measured(lambda: 1, cpu)[1].memory in (None, pytest.approx(0, abs=3))


def test_where_memory_cannot_be_told(monkeypatch):
    def refuse(*_):
        raise OSError

    monkeypatch.setattr("pathlib.Path.write_text", refuse)
    assert tables.measured(lambda: 1, torch.device("cpu"))[1].memory is None
    model, prompts = setting()
    table = compare(model, prompts, images_of()[0], methods=FEW, n_views=2)
    assert table.column("memory") == [None] * 3
    assert "memory unknown" in table.note


# figures


def rows_of(column, values, heights, **more):
    rows = [{"method": "zero-shot", column: None, "accuracy": 0.4, "entropy": 2.0, "lr": None, "steps": None, **more}]
    rows += [
        {"method": "TPT", "lr": 0.1 * i, "steps": i, column: value, "accuracy": height, "entropy": 1 - height}
        for i, (value, height) in enumerate(zip(values, heights, strict=True), start=1)
    ]
    return tpt_lib.evaluation.Table(tuple(rows), swept=column)


@pytest.mark.parametrize(("column", "label"), [("fraction", "rho"), ("views", "number of views"), ("steps", "steps")])
def test_curves(column, label):
    (axes,) = plot_sweep(rows_of(column, [1, 2, 4], [0.5, 0.7, 0.6])).axes
    curve, zero_shot = axes.lines
    assert curve.get_xydata().tolist() == [[1, 50], [2, 70], [4, 60]]
    assert set(zero_shot.get_ydata()) == {40}
    assert label in axes.get_xlabel()
    assert axes.get_ylabel() == "accuracy (%)"
    assert [tick.get_text() for tick in axes.get_xticklabels()] == ["1", "2", "4"]


def test_bars_are_the_best_of_each_groups_grid():
    table = rows_of("group", ["prompt", "prompt", "text", "image", "image"], [0.6, 0.7, 0.5, 0.3, 0.2])
    (axes,) = plot_sweep(table).axes
    assert [bar.get_height() for bar in axes.patches] == [70, 50, 30]
    assert [text.get_text() for text in axes.texts] == [
        "70\nlr 0.2\n2 steps",
        "50\nlr 0.3\n3 steps",
        "30\nlr 0.4\n4 steps",
    ]
    without = tpt_lib.evaluation.Table(tuple({**row, "accuracy": None} for row in table.rows), swept="group")
    (axes,) = plot_sweep(without).axes
    assert [bar.get_height() for bar in axes.patches] == pytest.approx([0.3, 0.5, 0.7])
    assert axes.get_ylabel() == "mean entropy"


def test_a_table_that_is_no_sweep():
    with pytest.raises(ValueError, match="not of a sweep over fraction, views, steps, group; its columns are"):
        plot_sweep(TABLE)


# budgets


def test_budgets_are_counted():
    model, prompts = setting()
    methods = {
        "hand-crafted": zero_shot_predict, "averaged": average_predict, "CoOp": (zero_shot_predict, coop()),
        "CoCoOp": (zero_shot_predict, cocoop()), "TPT": tpt_predict, "TPT + CoOp": (tpt_predict, coop()),
        "image tower": functools.partial(memo_clip_predict, group="image"), "both": (prompt_ensemble_predict, [coop(), cocoop()]),
    }  # fmt: skip
    training = {"CoOp": (16_000, 12_500), "CoCoOp": (16_000, 800_000)}
    table = budget_table(model, prompts, images_of()[0], methods=methods, training=training, n_views=6)
    network = 2 * 16 + 2 + 32 * 2 + 32
    want = {  # views, samples, iterations, added, tuned
        "hand-crafted": (1, 0, 0, 0, 0), "averaged": (6, 0, 0, 0, 0), "CoOp": (1, 16_000, 12_500, 4 * 32, 0),
        "CoCoOp": (1, 16_000, 800_000, 4 * 32 + network, 0), "TPT": (6, 0, 0, 0, 4 * 32),
        "TPT + CoOp": (6, None, None, 4 * 32, 4 * 32), "image tower": (6, 0, 0, 0, None),
        "both": (1, None, None, 2 * 4 * 32 + network, 0),
    }  # fmt: skip
    assert {row["method"]: tuple(list(row.values())[2:]) for row in table.rows} == want
    assert min(table.column("seconds")) > 0
    assert budget_table(model, prompts, images_of()[0], n_views=2).column("method") == ["hand-crafted", "TPT"]


def test_the_papers_table_of_strategies():
    model, prompts = setting()
    methods = {
        "hand-crafted": zero_shot_predict, "CoOp": (zero_shot_predict, coop()),
        "CoCoOp": (zero_shot_predict, cocoop()), "TPT": tpt_predict, "TPT + CoOp": (tpt_predict, coop()),
    }  # fmt: skip
    table = strategy_table(model, prompts, images_of()[0], methods=methods, n_views=4)
    assert table.columns == ["method", "learnable", "no training data", "input-dependent"]
    assert [tuple(row.values()) for row in table.rows] == [
        ("hand-crafted", False, True, False),
        ("CoOp", True, False, False),
        ("CoCoOp", True, False, True),
        ("TPT", True, True, True),
        ("TPT + CoOp", True, False, True),
    ]


def test_other_words_are_no_learned_prompt():
    model, _ = setting()
    prompts = class_prompts(model, NAMES, context="a drawing of the")
    table = budget_table(model, prompts, images_of()[0], methods={"words": zero_shot_predict}, n_views=2)
    assert (table.rows[0]["added"], table.rows[0]["samples"]) == (0, 0)


@pytest.mark.usefixtures("no_shape_checks")
@pytest.mark.parametrize(("images", "labels", "options", "kind", "message"), [
    (images_of(), [0, 1], {}, ValueError, "there are 3 images and 2 labels; give one for each"),
    (images_of(), [0, 1, 3], {}, ValueError, "the index of a class, 0 to 2, or one of their names, but got 3"),
    (images_of(), [0, 1, -1], {}, ValueError, "or one of their names, but got -1"),
    (images_of(), ["cat", "cow", "dog"], {}, ValueError, "or one of their names, but got 'cow'"),
    ([], None, {}, ValueError, "there are no images"),
    (images_of(), None, {"methods": {}}, ValueError, "methods is empty; give one or more"),
    (images_of(), None, {"methods": {"x": lambda *_: 3}}, TypeError, "must return a Prediction .* returned a int"),
    (images_of(), None, {"n_views": 0}, ValueError, "n_views must be an int of at least 1"),
])  # fmt: skip
def test_bad_input(images, labels, options, kind, message):
    model, prompts = setting()
    with pytest.raises(kind, match=message):
        compare(model, prompts, images, labels, **{"methods": FEW, "n_views": 2, **options})


@pytest.mark.usefixtures("no_shape_checks")
@pytest.mark.parametrize("options", [{"numbers": []}, {"numbers": [0]}, {"n_views": 8}])
def test_bad_numbers_of_views(options):
    model, prompts = setting()
    with pytest.raises(ValueError, match="the numbers of views are given as numbers=, each at least 1"):
        sweep_views(model, prompts, images_of(), **options)
