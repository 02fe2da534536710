"""Ready-made wrappers: open_clip, transformers and OpenAI-style CLIP modules as ``ClipLike``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import nn

from tpt_lib.models.open_clip import wrap_open_clip
from tpt_lib.models.openai import wrap_openai
from tpt_lib.models.protocol import ClipLike, ImageSpec
from tpt_lib.models.transformers import wrap_transformers

__all__ = ["wrap"]


def wrap(
    model: nn.Module | ClipLike, tokenizer: Callable[..., Any] | None = None, *, image_spec: ImageSpec | None = None
) -> ClipLike:
    """A ``ClipLike`` around a CLIP you already have. The model is shared, never copied, moved or changed.

    Args:
        model: an open_clip ``CLIP``, ``CustomTextCLIP`` or ``CoCa``; a transformers ``CLIPModel``, ``SiglipModel``,
            ``Siglip2Model``, ``ChineseCLIPModel`` or ``AltCLIPModel``; an OpenAI-style CLIP module; or a ``ClipLike``,
            which comes back as it is.
        tokenizer: an open_clip tokenizer, a transformers tokenizer or processor, or any function from a list of texts
            to padded ids. Not needed for the 49408 tokens of CLIP's own vocabulary. open_clip's
            ``get_tokenizer(name)`` also cleans texts as the model was trained with, which a bare one does not.
        image_spec: how images are preprocessed; by default what the model (or the processor) says of itself.

    >>> import open_clip
    >>> wrap(open_clip.create_model("ViT-S-32-alt")).image_spec.size
    (224, 224)
    """
    if isinstance(model, ClipLike):
        if tokenizer is not None or image_spec is not None:
            raise TypeError(
                f"wrap: {type(model).__name__} is a ClipLike already and brings its own tokenizer and image_spec; "
                "call wrap with the bare model to choose others"
            )
        return model
    bare: Any = getattr(model, "_orig_mod", model)  # torch.compile
    for adapt in (wrap_open_clip, wrap_transformers, wrap_openai):
        if isinstance(bare, nn.Module) and (wrapped := adapt(bare, tokenizer, image_spec)) is not None:
            return wrapped
    raise TypeError(
        f"wrap: no adapter knows {type(model).__module__}.{type(model).__name__}. Known are open_clip's CLIP, "
        "CustomTextCLIP and CoCa; transformers' CLIPModel, SiglipModel, Siglip2Model, ChineseCLIPModel and "
        "AltCLIPModel; and modules built like OpenAI's CLIP. For another model write the seven members of "
        "tpt_lib.ClipLike (encode_image, tokenize, embed_tokens, encode_embeddings, logit_scale, logit_bias, image_spec): "
        "examples/wrap_your_own.py does it in under 40 lines"
    )
