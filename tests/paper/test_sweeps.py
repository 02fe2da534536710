"""Sweeps: each row is what the method says with that setting."""

import functools

import pytest
from support.cases import state
from support.comparisons import features_of, images_of, setting

import tpt_lib
from tpt_lib import memo_clip_predict, tpt_predict, zero_shot_predict
from tpt_lib.paper import sweep_fractions, sweep_groups, sweep_steps, sweep_views


@pytest.mark.parametrize(("sweep", "column", "options", "method"), [
    (sweep_fractions, "fraction", {"fractions": [0.2, 0.5, 1.0], "n_views": 6},
     lambda f: {"select": functools.partial(tpt_lib.select_confident, fraction=f)}),
    (sweep_steps, "steps", {"steps": [1, 3], "n_views": 6}, lambda n: {"steps": n}),
    (sweep_views, "views", {"numbers": [2, 6]}, None),
])  # fmt: skip
def test_sweeps(sweep, column, options, method):
    model, prompts = setting()
    table = sweep(model, images_of(2), prompts, labels=[0, 1], **options)
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
        assert row["entropy"] == pytest.approx(float(sum(one.entropy for one in found)) / 2, rel=1e-2, abs=1e-4)
    assert len({round(entropy, 4) for entropy in table.column("entropy")}) == len(values) + 1


@pytest.mark.slow
def test_the_sweep_of_groups():
    model, prompts = setting()
    rates = {"prompt": [5e-3], "text": [1e-3, 1e-2], "image": [1e-3], "all": [1e-3]}
    table = sweep_groups(model, images_of()[0], prompts, labels=1, rates=rates, steps=[1, 2], n_views=4)
    assert [tuple(row[c] for c in ("group", "lr", "steps")) for row in table.rows] == [
        (None, None, None), ("prompt", 5e-3, 1), ("prompt", 5e-3, 2), ("text", 1e-3, 1), ("text", 1e-3, 2),
        ("text", 1e-2, 1), ("text", 1e-2, 2), ("image", 1e-3, 1), ("image", 1e-3, 2), ("all", 1e-3, 1), ("all", 1e-3, 2),
    ]  # fmt: skip
    assert table.column("method") == ["zero-shot", *["MEMO on CLIP"] * 10]
    made = tpt_lib.augment_views(images_of()[0], model.image_spec, n_views=4, recipe="augmix")
    for row in table.rows[1:]:
        found = memo_clip_predict(model, prompts, made, group=row["group"], lr=row["lr"], steps=row["steps"])
        assert row["entropy"] == pytest.approx(float(found.entropy), rel=1e-2, abs=1e-4)
        assert row["accuracy"] == (found.index == 1)
        assert len(found.selected) == 4


def test_the_model_is_untouched():
    model, prompts = setting()
    before = state(model.module)
    sweep_groups(model, images_of()[0], prompts, labels=0, steps=[1], n_views=3)
    assert state(model.module) == before


@pytest.mark.usefixtures("no_shape_checks")
@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"numbers": []}, r"each at least 1, but got \[\]"),
        ({"numbers": [0]}, r"each at least 1, but got \[0\]"),
        ({"n_views": 8}, "numbers=, not n_views=8"),
    ],
)
def test_bad_numbers_of_views(options, why):
    model, prompts = setting()
    with pytest.raises(ValueError, match=why):
        sweep_views(model, images_of(), prompts, **options)


@pytest.mark.parametrize("sweep", [sweep_fractions, sweep_groups, sweep_steps, sweep_views])
def test_unknown_keywords_are_refused(sweep):
    model, prompts = setting()
    with pytest.raises(TypeError, match=f"{sweep.__name__}: unknown keyword 'recip'; did you mean 'recipe'?"):
        sweep(model, images_of(), prompts, recip="crop")
