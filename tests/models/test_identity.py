"""What tells one model from another: a digest of its weights, and the fingerprint that the text cache trusts."""

import gc

import pytest
import torch
from support.zoo import ZOO, build, fresh
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from tpt_lib.models.identity import Fingerprint, digest, identify, text_fingerprint


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


@pytest.mark.parametrize("name", ZOO)
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


@pytest.mark.parametrize("name", ZOO)
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
    assert len(count.operations) == 2


def test_a_model_without_text_parts_has_no_fingerprint():
    class Own:
        image_spec, logit_scale, logit_bias = build("open_clip-vit").image_spec, 1.0, 0.0
        tokenize = embed_tokens = encode_image = encode_embeddings = print

    assert text_fingerprint(Own()) is None


def test_settings_are_compared_by_value():
    weight = torch.ones(1)
    assert Fingerprint([weight, (("eps", 0.5),)]).same(Fingerprint([weight, (("eps", 0.5),)]))
    assert not Fingerprint([weight, (("eps", 0.5),)]).same(Fingerprint([weight, (("eps", 0.25),)]))


def test_identify_tells_weights_apart():
    model, again, other = fresh("open_clip-vit"), fresh("open_clip-vit"), fresh("open_clip-vit")
    with torch.no_grad():
        other.module.visual.proj[0, 0] += 1
    assert identify(model) == identify(again)
    assert identify(model)["model"] == "CLIP"
    assert identify(model.module) == identify(model)
    assert identify(other)["weights"] != identify(model)["weights"]
    assert identify(object()) == {"model": "object", "weights": "unknown"}


def test_digest_sees_values_dtypes_and_shapes():
    tensors = [
        torch.zeros(4),
        torch.ones(4),
        torch.zeros(2, 2),
        torch.zeros(4, dtype=torch.int32),
        torch.zeros(2).double(),
    ]
    assert len({digest([tensor]) for tensor in tensors}) == len(tensors)
    assert digest(iter(tensors)) == digest(tensors)
