"""Runs from a store: they equal runs from images bit for bit, and what does not fit is refused before the work."""

import functools
import json

import pytest
import torch
from support.marking import slow_but
from support.noise_runs import NAMES, Noise, OwnClip, content, model
from support.rewards import pair, second_clip
from support.stores import damage, data, encoded, files
from support.zoo import fresh

import tpt_lib
from tpt_lib import compare, encode_dataset, evaluate, get_method, list_methods
from tpt_lib.paper import sweep_fractions, sweep_steps, sweep_views

FROM_FEATURES = [name for name in list_methods() if get_method(name).needs[0] == "features"]
PIXELS = [name for name in list_methods() if get_method(name).needs[0] == "views"]


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """Features of twelve pictures under two seeds, of a model and of a second one, sixth picture missing."""
    folder = tmp_path_factory.mktemp("stores") / "store"
    encoded(folder, Noise(bad=[6]), seeds=(0, 1), n_views=24)
    encode_dataset(
        second_clip(),
        data(Noise(bad=[6])),
        folder,
        name="second",
        n_views=24,
        shard_size=5,
        dtype="float32",
        seeds=(0, 1),
    )
    return tpt_lib.FeatureStore.open(folder)


def rows(file):
    return [row for row in content(file) if row["kind"] == "row"]


def methods_of(names):
    """Each method with its own title, and prompts where it takes several."""
    prompts = [tpt_lib.class_prompts(model(), NAMES, template=template) for template in ("a {}.", "the {}.")]
    return {name: (name, prompts) if name == "prompt_ensemble" else name for name in names}


@pytest.mark.parametrize("batch_size", [pytest.param(1, marks=pytest.mark.slow), 3])
@pytest.mark.parametrize("name", slow_but(["rlcf", "tps", "tpt", "zero_shot"], FROM_FEATURES))
def test_every_method_gives_the_same_rows_from_a_store(store, tmp_path, name, batch_size):
    more = {"reward": pair(NAMES)} if "reward" in get_method(name).needs else {}
    more |= {"batch_size": batch_size, "seeds": (1,)}
    some = [4, 5, 6, 7]
    images = data(Noise(bad=[6])).take(some)
    evaluate(model(), images, methods_of([name]), out=tmp_path / "images.jsonl", n_views=24, **more)
    evaluate(model(), store.select(some), methods_of([name]), out=tmp_path / "store.jsonl", **more)
    assert rows(tmp_path / "store.jsonl") == rows(tmp_path / "images.jsonl")
    assert len(rows(tmp_path / "store.jsonl")) == 4


def test_a_prefix_of_the_views_is_a_smaller_run(store, tmp_path):
    for out, source in (("a", store), ("b", data(Noise(bad=[6])))):
        evaluate(model(), source, ["tpt", "zero"], out=tmp_path / out, n_views=8, batch_size=5)
    assert rows(tmp_path / "a") == rows(tmp_path / "b")
    settings = [json.loads((tmp_path / out).read_text().split("\n")[0])["settings"] for out in ("a", "b")]
    assert settings[0].pop("stored") == "float32"
    assert settings[0] == settings[1]


def test_a_run_from_a_store_is_resumed_and_known_by_its_samples(store, tmp_path):
    out = tmp_path / "run.jsonl"
    evaluate(model(), store, "zero_shot", out=out)
    whole = rows(out)
    lines = out.read_text().splitlines(keepends=True)
    out.write_text("".join(lines[:5]))
    evaluate(model(), store, "zero_shot", out=out)
    assert rows(out) == whole
    assert len(whole) == 12
    with pytest.raises(ValueError, match=r"different settings"):
        evaluate(model(), store.select(range(12)[::-1]), "zero_shot", out=out)
    with pytest.raises(ValueError, match=r"views"):
        evaluate(model(), store, "zero_shot", out=out, n_views=3)


class TextOnly:
    """The text tower of the model, and nothing else."""

    def __init__(self):
        inner = model()
        self.tokenize, self.embed_tokens, self.encode_embeddings = (
            inner.tokenize,
            inner.embed_tokens,
            inner.encode_embeddings,
        )
        self.text_parts, self.causal_tower = inner.text_parts, inner.causal_tower
        self.logit_scale, self.logit_bias = inner.logit_scale, inner.logit_bias


@pytest.mark.usefixtures("no_shape_checks")
def test_a_model_without_an_image_tower_will_do(store, tmp_path):
    names = ["zero_shot", "tpt"]
    evaluate(TextOnly(), store, names, out=tmp_path / "text.jsonl")
    evaluate(model(), store, names, out=tmp_path / "both.jsonl")
    assert content(tmp_path / "text.jsonl") == content(tmp_path / "both.jsonl")
    refused(store, tmp_path, "TENT needs the pixels of views", clip=TextOnly(), methods="tent")


def test_no_image_is_encoded(store, tmp_path, monkeypatch):
    monkeypatch.setattr(type(model()), "encode_image", lambda *_: pytest.fail("the image tower ran"))
    evaluate(model(), store, ["tpt", "mta"], out=tmp_path / "run.jsonl")


def refused(store, tmp_path, message, *, clip=None, methods="zero_shot", **options):
    out = tmp_path / "refused.jsonl"
    with pytest.raises(ValueError, match=message):
        evaluate(clip or model(), store, methods, out=out, **options)
    assert not out.exists()


def test_what_does_not_fit_is_refused_before_the_work(store, tmp_path):
    other = fresh("open_clip-vit")
    with torch.no_grad():
        next(other.module.visual.parameters()).mul_(2)
    refused(store, tmp_path, r"features of another model \(image_tower is .*\['model', 'second'\].*name=", clip=other)
    with torch.no_grad():
        other.module.logit_scale.add_(1)
    refused(store, tmp_path, "logit_scale", clip=other)
    refused(store, tmp_path, "seeds .* but not of 7", seeds=(0, 7))
    refused(store, tmp_path, "24 views .* but got 25", n_views=25)
    refused(store, tmp_path, "made with recipe='crop', but got 'augmix'", recipe="augmix")
    refused(store, tmp_path, r"made with scale=\[0.08, 1.0\]", scale=(0.5, 1.0))
    for name in PIXELS:
        title = get_method(name).title
        refused(store, tmp_path, rf"{title} needs the pixels of views", methods=["zero_shot", name])
    refused(store, tmp_path, "TENT needs the pixels of views, .*; pass the dataset", methods=["tda", "tent"])
    third = tpt_lib.wrap(fresh("open_clip-resnet").module)
    prompts = tpt_lib.class_prompts(third, NAMES)
    refused(store, tmp_path, "features of another model", methods="rlcf", reward=(third, prompts))


def test_a_model_whose_weights_cannot_be_seen_is_refused(store, tmp_path):
    nameless = OwnClip()
    nameless.name = ""
    refused(store, tmp_path, "cannot be checked whether the features", clip=nameless)


def test_damage_is_found_before_the_work(tmp_path):
    store = encoded(tmp_path / "store")
    damage(files(store)[1])
    refused(store, tmp_path, r"1 file\(s\) of the store cannot be used: samples 5 to 9")
    evaluate(model(), store.select([0, 11]), "zero_shot", out=tmp_path / "run.jsonl")
    with pytest.raises(ValueError, match="samples 5 to 9"):
        compare(model(), store, NAMES)


def numbers(table):
    return [{k: v for k, v in row.items() if k not in ("seconds", "first", "memory")} for row in table.rows]


@pytest.mark.slow
def test_tables_from_a_store_equal_those_from_images(store):
    good = store.select([0, 3, 9])
    images = [Noise()[i] for i in (0, 3, 9)]
    prompts = tpt_lib.class_prompts(model(), NAMES)
    for call in (
        functools.partial(compare, methods=["zero_shot", "tpt", "zero"]),
        functools.partial(sweep_fractions, fractions=[0.1, 0.5]),
        functools.partial(sweep_steps, steps=[1, 2]),
    ):
        found = call(model(), good, prompts, n_views=16, seed=1)
        assert numbers(found) == numbers(call(model(), images, prompts, n_views=16, seed=1))
        assert list(found.shared) == ["reading"]
    found = sweep_views(model(), good, prompts, numbers=[4, 24])
    assert numbers(found) == numbers(sweep_views(model(), images, prompts, numbers=[4, 24]))
    with pytest.raises(ValueError, match="24 views"):
        sweep_views(model(), good, prompts)
    with_reward = compare(model(), good, prompts, methods=["rlcf"], reward=pair(NAMES))
    assert numbers(with_reward) == numbers(
        compare(model(), images, prompts, methods=["rlcf"], reward=pair(NAMES), n_views=24)
    )
