"""What tells one model from another: a digest of its weights, and the fingerprint that the text cache trusts."""

import copy
import dataclasses
import gc
import json
import math

import pytest
import torch
from support.zoo import EACH_FEW_QUICK, build, fresh
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from tpt_lib.content import describe, digest
from tpt_lib.models.identity import Fingerprint, check_known, identify, module_digest, text_fingerprint, tower_digest
from tpt_lib.models.protocol import ImageSpec


def stepped(module):
    module.ln_final.weight.grad = torch.ones_like(module.ln_final.weight)
    torch.optim.AdamW([module.ln_final.weight], lr=1e-3).step()


def loaded(module):
    module.load_state_dict({name: weight + 1 for name, weight in module.state_dict().items()})


def assigned(module):
    module.load_state_dict({name: weight.clone() for name, weight in module.state_dict().items()}, assign=True)


@torch.no_grad()
def in_place(module):
    module.token_embedding.weight[7, 3] += 1


def replaced(module):
    module.text_projection = nn.Parameter(module.text_projection.detach().clone())


def replaced_in_place(module):
    module.text_projection = nn.Parameter(module.text_projection.detach())


def pointed_elsewhere(module):
    module.ln_final.weight.data = module.ln_final.weight.data.clone()


def patched(module):
    module.ln_final.forward = module.ln_final.forward


WEIGHTS = [stepped, loaded, assigned, in_place, replaced, replaced_in_place, pointed_elsewhere, lambda m: m.double()]

STRUCTURE = [
    patched,
    lambda m: m.ln_final.register_forward_hook(lambda *_: None),
    lambda m: m.ln_final.register_forward_pre_hook(lambda *_: None),
    lambda m: m.ln_final.register_full_backward_hook(lambda *_: None),
    lambda m: m.ln_final.register_full_backward_pre_hook(lambda *_: None),
    lambda m: setattr(m.ln_final, "eps", 0.5),
    lambda m: setattr(m, "new_setting", None),
    lambda m: setattr(m, "ln_final", nn.LayerNorm(32)),
]


@pytest.mark.parametrize("change", WEIGHTS)
def test_changed_weights_are_seen_and_are_no_change_of_structure(change):
    model = fresh("open_clip-vit")
    before = text_fingerprint(model)
    change(model.module)
    after = text_fingerprint(model)
    assert not after.same(before)
    assert not before.same(after)
    assert after.structure == before.structure


@pytest.mark.parametrize("change", STRUCTURE)
def test_changed_structure_is_seen(change):
    model = fresh("open_clip-vit")
    before = text_fingerprint(model)
    change(model.module)
    after = text_fingerprint(model)
    assert not after.same(before)
    assert after.structure != before.structure


def test_a_mask_that_is_no_buffer_is_seen():
    model = fresh("openai")
    before = text_fingerprint(model)
    model.module.transformer.resblocks[1].attn_mask[0, 1] = 0
    assert not text_fingerprint(model).same(before)


@pytest.mark.parametrize("name", EACH_FEW_QUICK)
def test_without_a_change_it_is_the_same(name):
    model = fresh(name)
    before = text_fingerprint(model)
    ids = model.tokenize(["a cat"])
    model.encode_embeddings(model.embed_tokens(ids).requires_grad_(), ids).sum().backward()
    model.causal_tower()
    model.module.train()
    after = text_fingerprint(model)
    assert after.same(before)
    assert after.structure == before.structure
    assert hash(after.structure) == hash(before.structure)


def test_the_image_tower_does_not_count():
    model = fresh("open_clip-vit")
    before = text_fingerprint(model)
    with torch.no_grad():
        model.module.visual.proj.mul_(2)
    model.module.visual.register_forward_hook(lambda *_: None)
    assert text_fingerprint(model).same(before)


def test_another_model_has_another_fingerprint():
    one, other = (text_fingerprint(fresh("open_clip-vit")) for _ in range(2))
    assert not one.same(other)
    assert not one.same(None)


def test_weights_made_in_inference_mode_have_no_version():
    with torch.inference_mode():
        model = fresh("open_clip-vit")
    before = text_fingerprint(model)
    assert text_fingerprint(model).same(before)
    replaced(model.module)
    assert not text_fingerprint(model).same(before)


def test_ids_cannot_be_reused():
    model = fresh("open_clip-vit")
    norm = model.module.ln_final
    kept = [id(norm), id(norm.weight)]
    before = text_fingerprint(model)
    model.module.ln_final = nn.Identity()
    del norm
    gc.collect()
    alive = {id(each) for each in gc.get_objects()} | {id(part) for part in before.parts}
    assert set(kept) <= alive


def test_writes_through_data_are_not_seen():
    """The convention that the docstring states; ``prompts.forget()`` is the remedy."""
    model = fresh("open_clip-vit")
    before = text_fingerprint(model)
    model.module.ln_final.weight.data.mul_(2)
    assert text_fingerprint(model).same(before)


class Count(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.operations = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.operations.append(func)
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("name", EACH_FEW_QUICK)
@pytest.mark.usefixtures("no_shape_checks")  # which read logit_scale
def test_no_tensor_operation_is_launched(name):
    model = build(name)
    with Count() as count:
        one, other = text_fingerprint(model), text_fingerprint(model)
        assert one.same(other)
        assert one.structure == other.structure
    assert count.operations == []


def test_that_operations_would_be_counted():
    weight = torch.ones(2)
    with Count() as count:
        weight.detach().sum()
    assert {str(operation.overloadpacket) for operation in count.operations} == {"aten.detach", "aten.sum"}


def test_a_model_without_text_parts_has_no_fingerprint():
    class Own:
        image_spec, logit_scale, logit_bias = build("open_clip-vit").image_spec, 1.0, 0.0
        tokenize = embed_tokens = encode_image = encode_embeddings = print

    assert text_fingerprint(Own()) is None


def test_settings_are_compared_by_value():
    weight = torch.ones(1)
    assert Fingerprint([weight, (("eps", 0.5),)]).same(Fingerprint([weight, (("eps", 0.5),)]))
    assert not Fingerprint([weight, (("eps", 0.5),)]).same(Fingerprint([weight, (("eps", 0.25),)]))


@pytest.mark.parametrize("name", EACH_FEW_QUICK)
def test_equal_models_have_one_identity(name):
    model = build(name)
    found = identify(model)
    assert found == identify(dataclasses.replace(model, module=copy.deepcopy(model.module)))
    assert found["image_tower"] != found["text_tower"]
    assert json.loads(json.dumps(found)) == found


@torch.no_grad()
def shifted(module, name):
    weight = dict(module.named_parameters())[name]
    weight.view(-1)[0] += 1


@pytest.mark.parametrize("name", EACH_FEW_QUICK)
def test_each_weight_is_of_one_tower(name):
    """A changed weight changes the digest of its tower and no other; the scale and the bias are with the text."""
    model = fresh(name)
    names = [key for key, _ in model.module.named_parameters()]
    with torch.no_grad():
        for weight in model.module.parameters():
            weight.normal_()  # CoCa leaves some as the memory was, where 1 more may be the same number
    chosen = {f(names): None for f in (min, max)} | dict.fromkeys(n for n in names if "proj" in n and n.count(".") < 2)
    after = identify(model)
    for key in chosen:
        before = after
        shifted(model.module, key)
        after = identify(model)
        tower = "image_tower" if key.startswith(("visual", "vision")) else "text_tower"
        others = {"image_tower", "text_tower", "model", "image_spec"} - {tower}
        assert before[tower] != after[tower], key
        assert {k: before[k] for k in others} == {k: after[k] for k in others}, key


def test_the_scale_and_the_bias_are_part_of_a_model():
    model = fresh("open_clip-custom-text")
    before = identify(model)
    shifted(model.module, "logit_scale")
    assert identify(model)["logit_scale"] == pytest.approx(before["logit_scale"] * math.e)
    shifted(model.module, "logit_bias")
    assert identify(model)["logit_bias"] == pytest.approx(before["logit_bias"] + 1)


def test_the_activation_is_part_of_both_towers():
    plain, quick = identify(build("open_clip-vit")), identify(build("open_clip-quickgelu"))
    assert plain["image_tower"] != quick["image_tower"]
    assert plain["text_tower"] != quick["text_tower"]
    weights = [list(build(f"open_clip-{name}").module.state_dict().values()) for name in ("vit", "quickgelu")]
    assert digest(weights[0]) == digest(weights[1])


@pytest.mark.parametrize(
    "change",
    [
        lambda m: setattr(m.visual.ln_post, "eps", 0.5),
        lambda m: m.visual.ln_post.register_forward_hook(lambda *_: None),
        lambda m: m.visual.half(),
    ],
)
def test_settings_hooks_and_dtypes_are_part_of_a_tower(change):
    model = fresh("open_clip-vit")
    before = identify(model)
    change(model.module)
    assert identify(model)["image_tower"] != before["image_tower"]
    assert identify(model)["text_tower"] == before["text_tower"]


def test_preprocessing_and_tokens_are_part_of_a_model():
    model = build("open_clip-vit")
    spec = dataclasses.replace(model.image_spec, interpolation="bilinear")
    assert identify(dataclasses.replace(model, image_spec=spec))["image_spec"]["interpolation"] == "bilinear"
    other = dataclasses.replace(model, tokenizer=lambda texts: model.tokenizer([text.upper() + "!" for text in texts]))
    assert tower_digest(other, "text") != tower_digest(model, "text")
    assert tower_digest(other, "image") == tower_digest(model, "image")


def test_a_mode_a_gradient_or_a_compiled_tower_is_no_other_model():
    model = fresh("open_clip-vit")
    before = identify(model)
    model.module.train().requires_grad_(False)
    assert identify(model) == before
    model.module.visual = torch.compile(model.module.visual, backend="eager")
    assert identify(model) == before
    model.module.transformer.compile(backend="eager")
    assert identify(model) == before


class Bare:
    """A model of one's own whose weights cannot be seen."""

    image_spec, logit_scale, logit_bias = ImageSpec((32, 32)), 1.0, 0.0
    embed_tokens = encode_image = encode_embeddings = print

    def tokenize(self, texts):
        return torch.tensor([[len(text)] for text in texts])


class Named(Bare):
    name = "mine, step 3"


class Describing(Bare):
    def describe(self):
        return "mine, step 4"


class Numbered(Bare):
    def describe(self):
        return 4


class Divided(Bare):
    """A model of one's own that shows the parts of each tower."""

    def __init__(self):
        self.images, self.texts = torch.zeros(3), torch.zeros(3)

    def image_parts(self):
        return [self.images]

    def text_parts(self):
        return [self.texts, ("layers", 3)]


def test_a_model_that_cannot_be_seen_needs_a_name_or_a_description():
    assert identify(Bare())["image_tower"] == identify(Bare())["text_tower"] == "unknown"
    assert identify(Named())["image_tower"] == identify(Named())["text_tower"] == "known as mine, step 3"
    assert identify(Describing())["text_tower"] == "mine, step 4"
    assert identify(Numbered())["text_tower"] == "4"
    assert [identify(model)["model"] for model in (Bare(), Named(), build("open_clip-vit"))] == [
        "Bare",
        "mine, step 3",
        "CLIP",
    ]
    divided = Divided()
    before = identify(divided)
    divided.images += 1
    after = identify(divided)
    assert before["image_tower"] != after["image_tower"]
    assert before["text_tower"] == after["text_tower"]


def test_an_unknown_model_is_warned_about_and_its_files_are_refused(tmp_path):
    file, empty = tmp_path / "run.jsonl", tmp_path / "empty.jsonl"
    empty.write_text("")
    check_known("evaluate", identify(Named()), file)
    for path in (file, empty):
        with pytest.warns(
            UserWarning, match=r"evaluate: this run cannot be resumed .* the weights of Bare cannot be seen"
        ):
            check_known("evaluate", identify(Bare()), path)
    file.write_text("{}")
    with pytest.raises(
        ValueError, match=r"run\.jsonl' exists and cannot be resumed: .*a name .*, or a method describe\(\)"
    ):
        check_known("evaluate", identify(Bare()), empty, file)


class Undivided(torch.nn.Module, Bare):
    def __init__(self):
        super().__init__()
        self.image, self.text = torch.nn.Linear(2, 2), torch.nn.Linear(2, 2)


def test_a_module_that_is_not_divided_is_hashed_once(monkeypatch):
    calls = []
    monkeypatch.setattr("tpt_lib.models.identity.digest", lambda parts: calls.append(parts) or "digest")
    found = identify(Undivided())
    assert found["image_tower"] == found["text_tower"] == "digest"
    assert len(calls) == 1


def test_a_module_that_is_not_divided_is_known_by_its_weights():
    model = Undivided()
    before = identify(model)
    shifted(model, "image.weight")
    assert identify(model)["text_tower"] != before["text_tower"]


def test_a_wrapped_model_in_a_setting_is_described_by_its_content():
    model, other = fresh("open_clip-vit"), fresh("open_clip-vit")
    model.tokenize(["a word that fills the tokenizer's cache"])
    assert describe([model]) == describe([other])
    shifted(other.module, "visual.proj")
    assert describe([model]) != describe([other])


def test_a_module_is_known_by_its_weights_and_settings():
    one, other = (nn.Sequential(nn.Linear(2, 2), nn.ReLU()) for _ in range(2))
    assert module_digest(one) != module_digest(other)
    other.load_state_dict(one.state_dict())
    assert module_digest(one) == module_digest(other)
    other[1].inplace = True
    assert module_digest(one) != module_digest(other)
