"""Open causal text towers block by block, for the packed text engine.

Norms, activations and layer scales are the model's own modules. Only the attention between positions is left to the
engine. For an unsupported tower, the functions return the reason, and the model takes the full-length engine.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tpt_lib.models.protocol import CausalTower


@dataclass(frozen=True)
class ResBlock:
    """A ``ResidualAttentionBlock`` of OpenAI's CLIP or open_clip, with q, k and v in one matrix."""

    block: Any
    heads: int

    def qkv(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        attn = self.block.attn
        q, k, v = F.linear(self.block.ln_1(x), attn.in_proj_weight, attn.in_proj_bias).chunk(3, dim=-1)
        return q, k, v

    def merge(self, x: Tensor, attended: Tensor) -> Tensor:
        block = self.block
        x = x + _scaled(block, "ls_1", block.attn.out_proj(attended))
        return x + _scaled(block, "ls_2", block.mlp(block.ln_2(x)))


@dataclass(frozen=True)
class ClipLayer:
    """A ``CLIPEncoderLayer`` of transformers, with q, k and v in separate matrices."""

    block: Any
    heads: int

    def qkv(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        attn, x = self.block.self_attn, self.block.layer_norm1(x)
        return attn.q_proj(x), attn.k_proj(x), attn.v_proj(x)

    def merge(self, x: Tensor, attended: Tensor) -> Tensor:
        x = x + self.block.self_attn.out_proj(attended)
        return x + self.block.mlp(self.block.layer_norm2(x))


@dataclass(frozen=True)
class Tower:
    """A ``CausalTower`` of blocks between a token embedding and a final norm and projection."""

    embedding: nn.Module
    positions: Tensor
    blocks: list[Any]
    norm: nn.Module
    projection: Any
    dtype: torch.dtype
    eos: int | None  # pools at the first position with this id; None pools at the largest id

    def embed(self, ids: Tensor) -> Tensor:
        return self.embedding(ids).to(self.dtype)

    def finish(self, x: Tensor) -> Tensor:
        x = self.norm(x)
        if self.projection is None:
            return x
        return self.projection(x) if isinstance(self.projection, nn.Module) else x @ self.projection

    def pool(self, ids: Tensor) -> Tensor:
        return ids.argmax(dim=-1) if self.eos is None else (ids == self.eos).int().argmax(dim=-1)


def resblock_tower(module: Any, text: Any) -> CausalTower | str:
    """Open the text tower of OpenAI's CLIP, or of open_clip's ``CLIP`` and ``TextTransformer``.

    Args:
        module: the whole model, whose hooks count too.
        text: the part of it that holds the text tower.

    Returns:
        The tower, or the reason why it cannot be opened.
    """
    if getattr(text, "cls_emb", None) is not None:
        return "a class token is appended and pooled (CoCa)"
    if not hasattr(getattr(text, "transformer", None), "resblocks"):
        return f"the text tower is a {type(getattr(text, 'transformer', text)).__name__}"
    transformer, blocks = text.transformer, list(text.transformer.resblocks)
    pooling = getattr(text, "text_pool_type", getattr(text, "pool_type", "argmax"))
    if pooling not in ("argmax", "eos"):
        return f"the pooled position is {pooling!r}, not the end of the text"
    if getattr(transformer, "grad_checkpointing", False):
        return "gradient checkpointing is on"
    masks = [getattr(b, "attn_mask", None) for b in blocks]  # OpenAI's CLIP has them in its blocks
    if not all(_is_causal(m) for m in ([text.attn_mask] if hasattr(text, "attn_mask") else masks)):
        return "the attention mask is not causal"
    for block in blocks:
        if not _is_plain_attention(block.attn) or hasattr(block, "ln_1_kv") or hasattr(block, "ln_attn"):
            return f"blocks of an unknown kind ({type(block).__name__} with {type(block.attn).__name__})"
    owners, parts = [module, text, transformer], [text.token_embedding, *blocks, text.ln_final]
    return _hooked(owners, parts) or Tower(
        embedding=text.token_embedding,
        positions=text.positional_embedding,
        blocks=[ResBlock(b, b.attn.num_heads) for b in blocks],
        norm=text.ln_final,
        projection=text.text_projection,
        dtype=blocks[0].mlp.c_fc.weight.dtype,
        eos=getattr(text, "text_eos_id", getattr(text, "eos_id", None)) if pooling == "eos" else None,
    )


def clip_text_tower(module: Any) -> CausalTower | str:
    """Open the text tower of a transformers ``CLIPModel``.

    Args:
        module: the whole model.

    Returns:
        The tower, or the reason why it cannot be opened.
    """
    text = getattr(module.text_model, "text_model", module.text_model)  # transformers 4 nests it once more
    layers = list(text.encoder.layers)
    if getattr(layers[0], "gradient_checkpointing", False) or getattr(text.encoder, "gradient_checkpointing", False):
        return "gradient checkpointing is on"
    owners, parts = [module, module.text_model, text, text.encoder], [text.embeddings, *layers, text.final_layer_norm]
    return _hooked(owners, parts) or Tower(
        embedding=text.embeddings.token_embedding,
        positions=text.embeddings.position_embedding.weight,
        blocks=[ClipLayer(layer, layer.self_attn.num_heads) for layer in layers],
        norm=text.final_layer_norm,
        projection=module.text_projection,
        dtype=text.embeddings.position_embedding.weight.dtype,
        eos=None if text.eos_token_id == 2 else text.eos_token_id,  # old configs say 2 and pool by argmax
    )


def _scaled(block: Any, name: str, x: Tensor) -> Tensor:
    return getattr(block, name)(x) if hasattr(block, name) else x


def _is_causal(mask: Tensor | None) -> bool:
    return mask is not None and torch.equal(mask, torch.full_like(mask, float("-inf")).triu(1))


def _is_plain_attention(attn: nn.Module) -> bool:
    return type(attn) is nn.MultiheadAttention and attn.in_proj_weight is not None and attn.bias_k is None


def _hooked(owners: list[nn.Module], parts: list[nn.Module]) -> str | None:
    """Return the reason if only the model's own forward would run a hook or a replaced ``forward``, else None."""
    for sub in [*owners, *(sub for part in parts for sub in part.modules())]:
        if sub._forward_hooks or sub._forward_pre_hooks or sub._backward_hooks or sub._backward_pre_hooks:
            return f"{type(sub).__name__} has hooks, which only the model's own forward runs"
        if "forward" in vars(sub):
            return f"{type(sub).__name__} has a forward of its own"
    return None
