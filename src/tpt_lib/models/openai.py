"""Wrap modules built like OpenAI's CLIP."""

from __future__ import annotations

from operator import attrgetter
from typing import Any

from torch import Tensor, nn

from tpt_lib.models.causal_towers import resblock_tower
from tpt_lib.models.module_clip import ModuleClip, TokenizerLike, as_tokenizer
from tpt_lib.models.protocol import CausalTower, ImageSpec

OPENAI_PARTS = [
    "visual",
    "transformer",
    "token_embedding",
    "positional_embedding",
    "ln_final",
    "text_projection",
    "logit_scale",
    "encode_image",
    "encode_text",
]


def wrap_openai(module: nn.Module, tokenizer: TokenizerLike | None, image_spec: ImageSpec | None) -> ModuleClip | None:
    """Wrap a module with the parts of OpenAI's CLIP.

    Args:
        module: the model.
        tokenizer: as for ``wrap``.
        image_spec: as for ``wrap``.

    Returns:
        The wrapped model, or None if the module lacks one of the parts.

    Raises:
        ValueError: if the module does not say how large its images are and ``image_spec`` is None.
    """
    if not all(hasattr(module, part) for part in OPENAI_PARTS):
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
        image_tower=attrgetter("visual"),
        token_embedding=attrgetter("token_embedding"),
        image_features=_image_features,
        text_features=_text_features,
        tower=_tower,
    )


def _image_features(module: Any, pixels: Tensor) -> Tensor:
    return module.encode_image(pixels)


def _text_features(module: Any, ids: Tensor) -> Tensor:
    return module.encode_text(ids)


def _tower(module: nn.Module) -> CausalTower | str:
    return resblock_tower(module, module)
