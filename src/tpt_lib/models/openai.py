"""Modules built like OpenAI's CLIP."""

from __future__ import annotations

from typing import Any

from torch import nn

from tpt_lib.models.causal_towers import resblock_tower
from tpt_lib.models.module_clip import ModuleClip, as_tokenizer
from tpt_lib.models.open_clip import Tokenizer
from tpt_lib.models.protocol import ImageSpec

OPENAI_PARTS = [
    "visual",
    "transformer",
    "token_embedding",
    "positional_embedding",
    "ln_final",
    "text_projection",
    "logit_scale",
]


def wrap_openai(module: nn.Module, tokenizer: Tokenizer, image_spec: ImageSpec | None) -> ModuleClip | None:
    """A ``ClipLike`` around a module with the parts of OpenAI's CLIP, or None if some are missing."""
    if not all(hasattr(module, part) for part in [*OPENAI_PARTS, "encode_image", "encode_text"]):
        return None
    parts: Any = module
    if image_spec is None:
        if not hasattr(parts.visual, "input_resolution"):
            raise ValueError("wrap: the image tower has no input_resolution; pass image_spec=ImageSpec((h, w))")
        image_spec = ImageSpec((parts.visual.input_resolution, parts.visual.input_resolution))
    return ModuleClip(
        module=module,
        tokenizer=as_tokenizer(tokenizer, len(parts.positional_embedding), parts.token_embedding.num_embeddings),
        image_spec=image_spec,
        image_tower=lambda m: m.visual,
        token_embedding=lambda m: m.token_embedding,
        image_features=lambda m, pixels: m.encode_image(pixels),
        text_features=lambda m, ids: m.encode_text(ids),
        tower=lambda m: resblock_tower(m, m),
    )
