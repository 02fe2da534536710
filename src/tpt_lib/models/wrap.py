"""Wrap a CLIP of any known library as a ``ClipLike``."""

from __future__ import annotations

from typing import Any

from torch import nn

from tpt_lib.models.module_clip import TokenizerLike
from tpt_lib.models.open_clip import wrap_open_clip
from tpt_lib.models.openai import wrap_openai
from tpt_lib.models.protocol import ClipLike, ImageSpec
from tpt_lib.models.transformers import wrap_transformers

__all__ = ["wrap"]


def wrap(
    model: nn.Module | ClipLike, tokenizer: TokenizerLike | None = None, *, image_spec: ImageSpec | None = None
) -> ClipLike:
    """Wrap a CLIP you already have as a ``ClipLike``. The model is shared, never copied, moved or changed.

    Args:
        model: an open_clip ``CLIP``, ``CustomTextCLIP`` or ``CoCa``; a transformers ``CLIPModel``, ``SiglipModel``,
            ``Siglip2Model``, ``ChineseCLIPModel`` or ``AltCLIPModel``; an OpenAI-style CLIP module; or a ``ClipLike``,
            which is returned as it is.
        tokenizer: an open_clip tokenizer, a transformers tokenizer or processor, or any function from a list of texts
            to padded ids. Default: CLIP's own, for models with its 49408 tokens. open_clip's ``get_tokenizer(name)``
            also cleans texts as in the model's training, which a bare tokenizer does not.
        image_spec: preprocessing of images. Default: that of the model or of the processor.

    Returns:
        The wrapped model. It can be copied and pickled if the model and its tokenizer can.

    Raises:
        TypeError: if no adapter knows the model, or it is a ``ClipLike`` and came with a tokenizer or an image_spec.
        ValueError: if the model needs a tokenizer or an image_spec that was not given.

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
    if image_spec is not None and not isinstance(image_spec, ImageSpec):
        raise TypeError(f"wrap: image_spec must be an ImageSpec, as ImageSpec((224, 224)), but got {image_spec!r}")
    bare: Any = getattr(model, "_orig_mod", model)  # torch.compile
    for adapt in (wrap_open_clip, wrap_transformers, wrap_openai):
        if isinstance(bare, nn.Module) and (wrapped := adapt(bare, tokenizer, image_spec)) is not None:
            return wrapped
    raise TypeError(
        f"wrap: no adapter knows {type(model).__module__}.{type(model).__name__}. Known are open_clip's CLIP, "
        "CustomTextCLIP and CoCa; transformers' CLIPModel, SiglipModel, Siglip2Model, ChineseCLIPModel and "
        "AltCLIPModel; and modules built like OpenAI's CLIP. For another model, implement the seven members of "
        "tpt_lib.ClipLike (encode_image, tokenize, embed_tokens, encode_embeddings, logit_scale, logit_bias, image_spec): "
        "examples/wrap_your_own.py does it in under 40 lines"
    )
