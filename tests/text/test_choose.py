"""Which engine is used, and why; the proof that the packed one is right; what opening a tower costs."""

import collections
import copy
import math

import pytest
import torch
from oracles.tpt import float64
from support.cases import largest
from support.odd_tower import Odd
from support.text_cases import NAMES, WORDINGS, assert_same, example, features_and_gradient, initial_of, plain_photo
from support.zoo import EACH_FEW_QUICK, TEXT, VISION, ZOO, build, fresh, liven, open_clip_model, transformers_model

import tpt_lib
from tpt_lib import class_prompts, encode_prompts
from tpt_lib.models.module_clip import ModuleClip
from tpt_lib.text import text_engine


@pytest.mark.parametrize("where", WORDINGS)
@pytest.mark.parametrize("name", EACH_FEW_QUICK)
def test_the_engine_is_the_expected_one(name, where):
    case = example(name, where)
    engine, reason = [*text_engine(case.model, case.prompts).split(": ", 1), ""][:2]
    assert engine == ZOO[name][2]
    assert (reason == "") == (engine == "packed")


def compiled(module):
    return torch.compile(module, backend="eager")


def with_a_compiled_part(module):
    module.transformer = torch.compile(module.transformer, backend="eager")
    return module


def in_train_mode(module):
    for block in module.transformer.resblocks:
        block.attn.dropout = 0.5
    return module.train()


def with_checkpointing(module):
    module.set_grad_checkpointing()
    return module


def with_a_hook(module):
    module.transformer.resblocks[1].register_forward_hook(lambda _module, _inputs, x: 2 * x)
    return module


STATES = {
    compiled: "packed",
    with_a_compiled_part: "packed",
    in_train_mode: "packed",
    with_checkpointing: "full_length: gradient checkpointing is on",
    with_a_hook: "full_length: ResidualAttentionBlock has hooks, which only the model's own forward runs",
}


@pytest.mark.parametrize("change", STATES)
def test_the_state_a_module_may_be_in(change):
    module = open_clip_model()
    plain = float64(with_a_hook(copy.deepcopy(module)) if change is with_a_hook else module)
    model = tpt_lib.wrap(change(module))
    prompts = class_prompts(model, NAMES)
    assert text_engine(model, prompts) == STATES[change]
    assert_same(features_and_gradient(model, prompts), plain_photo(plain, model, prompts))


def test_checkpointing_of_transformers():
    module = transformers_model()
    enable = getattr(module, "activation_checkpointing_enable", None)  # its name from transformers 5 on
    (enable or module.gradient_checkpointing_enable)()
    model = tpt_lib.wrap(module.train())
    prompts = class_prompts(model, NAMES)
    assert text_engine(model, prompts) == "full_length: gradient checkpointing is on"
    exact = build("transformers-clip")
    assert_same(features_and_gradient(model, prompts), features_and_gradient(exact, class_prompts(exact, NAMES)))


def test_weights_made_in_inference_mode():
    with torch.inference_mode():
        module = open_clip_model()
    model, exact = tpt_lib.wrap(module), build("open_clip-vit")
    prompts, want = class_prompts(model, NAMES), initial_of(exact, class_prompts(exact, NAMES))
    assert text_engine(model, prompts) == "packed"
    initial = initial_of(model, prompts)
    assert initial is initial_of(model, prompts)
    upstream = torch.randn_like(want.features)
    assert_same((initial.features, *initial.gradients(upstream)), (want.features, *want.gradients(upstream)))


def test_a_forward_unlike_its_structure_takes_the_full_length_engine():
    torch.manual_seed(0)
    model = tpt_lib.wrap(liven(Odd(16, vision_cfg=VISION, text_cfg=TEXT)).eval())
    prompts = class_prompts(model, NAMES)
    reason = "full_length: the opened tower gives other features than the model's own forward"
    assert text_engine(model, prompts) == "packed", "it runs no model, so it cannot know yet"
    want = plain_photo(float64(model.module), model, prompts)
    assert_same(features_and_gradient(model, prompts), want)
    assert text_engine(model, prompts) == reason
    assert text_engine(model, class_prompts(model, ["dog"], template="my {}")) == reason
    with pytest.raises(ValueError, match="no packed engine: the opened tower gives other features"):
        encode_prompts(model, prompts, engine="packed")


@pytest.fixture
def calls(monkeypatch):
    """Count the towers opened, the proofs made and the forwards of the model's text tower."""
    found = collections.Counter()

    def counted(owner, name):
        function = getattr(owner, name)

        def call(*args, **kwargs):
            found[name] += 1
            return function(*args, **kwargs)

        monkeypatch.setattr(owner, name, call)

    counted(ModuleClip, "causal_tower")
    counted(ModuleClip, "encode_embeddings")
    counted(tpt_lib.text.choose, "_prove")
    counted(tpt_lib.text.choose, "packed_features")
    counted(tpt_lib.text.encode, "packed_features")
    return found


def test_asking_for_the_engine_runs_no_model(calls):
    model = fresh("open_clip-vit")
    assert text_engine(model, class_prompts(model, NAMES)) == "packed"
    assert calls == {"causal_tower": 1}


def test_the_packed_engine_is_proven_once_for_each_structure_of_a_tower(calls):
    model = fresh("open_clip-vit")
    prompts = class_prompts(model, NAMES)
    for each in (prompts, prompts, class_prompts(model, ["dog"]), class_prompts(model, NAMES, template="my {} here")):
        encode_prompts(model, each)
    encode_prompts(tpt_lib.wrap(model.module), class_prompts(tpt_lib.wrap(model.module), NAMES))
    tpt_lib.tpt_predict(model, prompts, torch.eye(16)[:4])
    tpt_lib.template_ensemble_predict(model, prompts, torch.eye(16)[:4], templates=["a {}.", "the {}."])
    assert (calls["_prove"], calls["encode_embeddings"]) == (1, 1)
    with torch.no_grad():
        model.module.text_projection.mul_(2)
    encode_prompts(model, prompts)
    assert calls["_prove"] == 1, "other weights are no other structure"
    model.module.transformer.resblocks[0].mlp.gelu = torch.nn.ReLU()
    encode_prompts(model, prompts)
    encode_prompts(model, prompts)
    assert (calls["_prove"], calls["encode_embeddings"]) == (2, 2)
    other = fresh("open_clip-vit")
    encode_prompts(other, class_prompts(other, NAMES))
    assert calls["_prove"] == 3


def test_a_tower_is_opened_once_until_the_model_changes(calls):
    model = fresh("open_clip-vit")
    prompts, three = class_prompts(model, NAMES), class_prompts(model, NAMES, template=["a {}.", "my {}", "{} here"])
    views = torch.eye(16)[:4]

    def use():
        calls.clear()
        encode_prompts(model, three)
        tpt_lib.tune_prompt(model, prompts, torch.stack([views] * 3), steps=3)
        tpt_lib.zero_shot_predict(model, prompts, views)
        return calls["causal_tower"]

    assert (use(), use()) == (1, 0)
    with torch.no_grad():
        model.module.text_projection.mul_(2)
    assert (use(), use()) == (1, 0)
    model.module.transformer.resblocks[0].mlp.gelu = torch.nn.ReLU()
    assert (use(), use()) == (1, 0)


def test_weights_of_inference_mode_are_looked_at_each_time(calls):
    """Writes to them leave no trace, so an open tower would be stale."""
    with torch.inference_mode():
        model = fresh("open_clip-vit")
    prompts = class_prompts(model, NAMES)
    before = encode_prompts(model, prompts)
    with torch.inference_mode():
        model.module.text_projection.mul_(-1)
    assert largest(encode_prompts(model, prompts), -before) <= 1e-6


@pytest.mark.parametrize(
    ("dtype", "difference", "engine"),
    [
        (torch.float32, 0.0009, "packed"),
        (torch.float32, 0.0011, "full_length"),
        (torch.float16, 0.045, "packed"),
        (torch.float16, 0.055, "full_length"),
        (torch.bfloat16, 0.045, "packed"),
        (torch.bfloat16, 0.055, "full_length"),
    ],
)
def test_how_much_the_engines_may_differ(dtype, difference, engine, monkeypatch):
    """The largest difference of unit vectors counts, also where the squares of their features exceed float16."""
    model = fresh("open_clip-vit")
    prompts = class_prompts(model, NAMES)
    near = math.sqrt((1 - difference**2) / 2)
    for name, *row in (
        ("full_length_features", math.sqrt(0.5), math.sqrt(0.5), 0),
        ("packed_features", near, near, -difference),
    ):
        features = (8e4 * torch.tensor([[row, row]])).to(dtype)
        monkeypatch.setattr(tpt_lib.text.choose, name, lambda *_, features=features: features)
    model.module.text_projection.data = model.module.text_projection.data.to(dtype)
    tower = model.causal_tower()
    assert tpt_lib.text.choose._prove(tower, model, prompts) == (engine == "packed")


def test_equal_features_pass_without_tolerance(monkeypatch):
    model = fresh("open_clip-vit")
    prompts, features = class_prompts(model, NAMES), torch.ones(1, 2, 16)
    for name in ("full_length_features", "packed_features"):
        monkeypatch.setattr(tpt_lib.text.choose, name, lambda *_: features)
    monkeypatch.setattr(tpt_lib.text.choose, "TOLERANCE", 0)
    assert tpt_lib.text.choose._prove(model.causal_tower(), model, prompts)


@pytest.mark.usefixtures("no_shape_checks")
def test_names_have_no_engine():
    with pytest.raises(TypeError, match="text_engine: prompts must be what class_prompts"):
        text_engine(build("open_clip-vit"), NAMES)
