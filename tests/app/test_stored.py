"""A sample of a store in place of an image: the same answers without the image tower, and what is refused."""

import shutil

import pytest
import torch
from support import rewards
from support.app import drawn_store, tiny
from support.marking import slow_but
from support.stores import damage, files

import tpt_lib
from tpt_lib.app.choices import STORED, default_settings, read_choice, selectable_methods
from tpt_lib.app.explain import explain
from tpt_lib.app.other_tabs import compare_methods
from tpt_lib.app.stored import compare_with_models
from tpt_lib.app.words import named_model

pytestmark = pytest.mark.filterwarnings("ignore:the embedded model")


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    drawn_store(tmp_path_factory.mktemp("drawn"))
    return tpt_lib.FeatureStore.open(tmp_path_factory.getbasetemp() / "drawn0/store")


def chosen(store, models=None, **values):
    """The choice of a user who sends these values instead of those that the page starts with."""
    models = models or {"tiny": tiny()}
    given = {"source": STORED, "sample": 1, "model": "tiny", "views": 8, "seed": 0, "method": "tpt", **values}
    given = {**default_settings(given["method"]), **given}
    return read_choice(models, given, compare_with_models(store, models))[1]


def executed(code):
    names = {}
    exec(code, names)
    return names["result"]


@pytest.mark.parametrize("method", slow_but(["tpt", "zero"], selectable_methods(features_only=True)))
def test_the_python_call_reads_from_the_store_and_gives_the_same_result(store, method, capsys):
    found = explain(tiny(), chosen(store, method=method, seed=1, views=4))
    assert f"store = tpt.FeatureStore.open({str(store.path)!r}).of_model('tiny').seed(1).first_views(4)\n" in found.code
    assert "features, label = store[1]\n" in found.code
    said = executed(found.code)
    assert torch.equal(said.logits, found.prediction.logits)
    assert said.names == store.classes
    assert capsys.readouterr().out == f"{said} true label: unicorn\n"


@pytest.mark.slow
def test_the_image_tower_does_not_run(store, monkeypatch):
    monkeypatch.setattr(type(tiny().model), "encode_image", lambda *_: pytest.fail("it ran"))
    choice = chosen(store)
    found = explain(tiny(), choice)
    assert (choice.truth, found.views, len(found.before), len(found.after)) == (1, None, 8, 8)
    prompts = tpt_lib.class_prompts(tiny().model, store.classes, template=store.template)
    features, _ = store.of_model("tiny")[1]
    for row in compare_methods(tiny(), choice):
        if row.title == "MTA":
            assert torch.equal(
                row.prediction.logits, tpt_lib.methods.mta_predict(tiny().model, prompts, features).logits
            )


def test_a_part_of_a_store_is_numbered_as_the_part_and_called_by_the_whole(store):
    choice = chosen(store.select([2, 0]), sample=1)
    found = explain(tiny(), choice)
    assert (choice.truth, "features, label = store[0]\n" in found.code) == (0, True)
    assert ".seed(" not in found.code
    assert ".first_views(" not in found.code
    assert torch.equal(executed(found.code).logits, found.prediction.logits)


@pytest.mark.usefixtures("no_shape_checks")
@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"sample": 4}, r"^there is no sample 4 in this store; its samples are 0 to 3$"),
        ({"sample": -1}, "there is no sample -1"),
        ({"sample": None}, "there is no sample None"),
        ({"sample": True}, "there is no sample True"),
        ({"sample": 3}, r"^sample 3 has no features: ImageError: .*2\.png.*; choose another sample$"),
        (
            {"method": "memo_clip"},
            "^memo_clip needs the pixels of views, and a store has their features; choose another",
        ),
        ({"views": 9}, "8 views of each image are stored"),
        ({"seed": 2}, r"views of the seeds \[0, 1\] are stored, but not of 2"),
        ({"steps": 1000}, "steps must be a number from 0 to 64 here"),
    ],
)
def test_choices_that_are_refused(store, wrong, says):
    with pytest.raises(ValueError, match=says):
        chosen(store, **wrong)


def test_a_damaged_file_is_refused(store, tmp_path):
    copy = tpt_lib.FeatureStore.open(shutil.copytree(store.path, tmp_path / "copy"))
    damage(files(copy, name="tiny")[0])
    with pytest.raises(ValueError, match=r"sample 1 cannot be used: samples 0 to 3: .* is damaged.* to mend it"):
        chosen(copy)


@pytest.mark.slow
def test_a_model_without_features_is_refused_when_it_is_chosen(store):
    other = named_model(tpt_lib.wrap(rewards.open_clip_model(embed_dim=24)), "other")
    models = {"other": other, "tiny": tiny()}
    assert list(compare_with_models(store, models).of) == ["tiny"]
    assert chosen(store, models).truth == 1
    with pytest.raises(ValueError, match=r"^app: '.*store' has features of another model \(.*image_tower is .* there"):
        chosen(store, models, model="other")
    with pytest.raises(
        ValueError, match=r"has features of another model .* name the model of the store with --models$"
    ):
        compare_with_models(store, {"other": other})
