"""Towers opened block by block: run plainly they give the module's features; a tower that cannot be opened says why."""

import pytest
import torch
import torch.nn.functional as F
from support.zoo import ZOO, build, fresh, open_clip_model, transformers_model

import tpt_lib

TEXTS = ["a photo of a cat.", "a photo of a red panda.", "kite"]

REASONS = {
    "open_clip-not-causal": "the attention mask is not causal",
    "open_clip-qk-norm": "blocks of an unknown kind (CustomResidualAttentionBlock with Attention)",
    "open_clip-siglip": "the pooled position is 'last', not the end of the text",
    "open_clip-coca": "a class token is appended and pooled (CoCa)",
    "transformers-siglip": "SiglipModel is not a causal CLIP tower",
    "transformers-siglip2": "Siglip2Model is not a causal CLIP tower",
    "transformers-chinese-clip": "ChineseCLIPModel is not a causal CLIP tower",
    "transformers-altclip": "AltCLIPModel is not a causal CLIP tower",
}


def run(tower, ids):
    """All positions through all blocks, with attention written out."""
    x = tower.embed(ids) + tower.positions[: ids.shape[1]]
    for block in tower.blocks:
        q, k, v = (part.unflatten(-1, (block.heads, -1)).transpose(1, 2) for part in block.qkv(x))
        scores = (q @ k.mT / q.shape[-1] ** 0.5).masked_fill(torch.ones(ids.shape[1], ids.shape[1]).triu(1) > 0, -1e9)
        x = block.merge(x, (F.softmax(scores, dim=-1) @ v).transpose(1, 2).flatten(2))
    return tower.finish(x[torch.arange(len(x)), tower.pool(ids)])


@pytest.mark.parametrize("name", [name for name in ZOO if name not in REASONS])
def test_blocks_give_the_modules_features(name):
    model = build(name)
    tower, ids = model.causal_tower(), model.tokenize(TEXTS)
    assert isinstance(tower, tpt_lib.models.CausalTower)
    assert all(isinstance(block, tpt_lib.models.CausalBlock) for block in tower.blocks)
    with torch.no_grad():
        want = model.encode_embeddings(model.embed_tokens(ids), ids)
        torch.testing.assert_close(run(tower, ids), want, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("eos", [2, 49407])
def test_old_configs_of_transformers_pool_at_the_largest_id(eos):
    """They say 2, which is the id of an ordinary token: here the first after the start."""
    model = tpt_lib.wrap(transformers_model(eos_token_id=eos))
    ids = model.tokenize(TEXTS)
    ids[:, 1] = 2
    with torch.no_grad():
        want = model.encode_embeddings(model.embed_tokens(ids), ids)
        torch.testing.assert_close(run(model.causal_tower(), ids), want, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("name", "reason"), REASONS.items())
def test_a_tower_that_cannot_be_opened_says_why(name, reason):
    assert build(name).causal_tower() == reason


@pytest.mark.filterwarnings("ignore:.*gradient_checkpointing_enable:FutureWarning")  # the name in transformers 4
def test_gradient_checkpointing_is_a_reason():
    module = open_clip_model()
    module.set_grad_checkpointing()
    assert tpt_lib.wrap(module).causal_tower() == "gradient checkpointing is on"
    model = fresh("transformers-clip")
    model.module.gradient_checkpointing_enable()
    assert model.causal_tower() == "gradient checkpointing is on"


HOOKABLE = [
    ("open_clip-vit", ["", "token_embedding", "transformer", "transformer.resblocks.1.mlp.c_fc", "ln_final"]),
    ("open_clip-custom-text", ["", "text", "text.transformer", "text.transformer.resblocks.0"]),
    ("openai", ["", "transformer", "transformer.resblocks.0.ln_1"]),
    ("transformers-clip", ["", "text_model", "text_model.embeddings", "text_model.encoder", "text_model.encoder.layers.0"]),
]  # fmt: skip


@pytest.mark.parametrize(("name", "part"), [(name, part) for name, parts in HOOKABLE for part in parts])
@pytest.mark.parametrize("how", ["register_forward_hook", "register_forward_pre_hook", "register_full_backward_hook"])
def test_hooks_in_the_text_tower_are_a_reason(name, part, how):
    model = fresh(name)
    getattr(model.module.get_submodule(part), how)(lambda *_: None)
    assert "has hooks, which only the model's own forward runs" in model.causal_tower()


def test_a_patched_forward_is_a_reason():
    model = fresh("open_clip-vit")
    model.module.transformer.forward = model.module.transformer.forward
    assert model.causal_tower() == "Transformer has a forward of its own"


def test_hooks_in_the_image_tower_are_not():
    model = fresh("open_clip-vit")
    model.module.visual.register_forward_hook(lambda *_: None)
    assert isinstance(model.causal_tower(), tpt_lib.models.CausalTower)
