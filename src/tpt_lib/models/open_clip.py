"""open_clip models, and modules built like OpenAI's CLIP, which open_clip descends from."""

from __future__ import annotations

import difflib
import pickle
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from torch import nn

from tpt_lib.models.causal_towers import resblock_tower
from tpt_lib.models.module_clip import ModuleClip, as_tokenizer
from tpt_lib.models.protocol import ImageSpec

OPEN_CLIP_CLASSES = {"CLIP", "CustomTextCLIP", "CoCa"}

Tokenizer = Callable[..., Any] | None


def load_open_clip(
    name: str,
    pretrained: str | Path | None = None,
    *,
    tokenizer: Tokenizer = None,
    image_spec: ImageSpec | None = None,
    quick_gelu: bool | None = None,
    **kwargs: Any,
) -> ModuleClip:
    """An open_clip model with its weights, tokenizer and preprocessing.

    Args:
        name: an architecture of ``open_clip.list_models()``, or ``"local-dir:…"`` or ``"hf-hub:…"``, which hold their
            own weights.
        pretrained: a tag of ``open_clip.list_pretrained()``, or a checkpoint file (safetensors, or a state dict, which
            is loaded with ``weights_only=True``).
        tokenizer: instead of the architecture's own.
        image_spec: instead of the preprocessing that belongs to the weights.
        quick_gelu: whether the weights were trained with QuickGELU. A tag says so itself; for a file it is the
            architecture's setting.
        **kwargs: go to ``open_clip.create_model`` (``device=``, ``precision=``, …).
    """
    import open_clip

    own = name.startswith(("local-dir:", "hf-hub:"))
    if not own:
        name = _known_name(name, open_clip.list_models())
        pretrained = _known_weights(name, pretrained, open_clip)
        quick_gelu = _activation(name, str(pretrained), quick_gelu, open_clip)
    if quick_gelu is not None:
        kwargs["quick_gelu"] = quick_gelu
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "QuickGELU mismatch")  # settled above
            module = open_clip.create_model(
                name, None if own else str(pretrained), weights_only=True, require_pretrained=True, **kwargs
            )
    except pickle.UnpicklingError as error:
        raise ValueError(
            f"load_open_clip: the weights {str(pretrained or name)!r} are not loaded: they hold objects that could run code,"
            " or are broken; a state dict of tensors, or safetensors, is wanted"
        ) from error
    except RuntimeError as error:
        if "state_dict" not in str(error):
            raise
        raise ValueError(f"load_open_clip: the weights {str(pretrained)!r} do not fit {name!r}. {error}") from error
    wrapped = wrap_open_clip(module, tokenizer or open_clip.get_tokenizer(name), image_spec)
    assert wrapped is not None
    return replace(wrapped, name=f"{name} {Path(str(pretrained or '')).name}".strip())


def wrap_open_clip(module: nn.Module, tokenizer: Tokenizer, image_spec: ImageSpec | None) -> ModuleClip | None:
    """A ``ClipLike`` around open_clip's ``CLIP``, ``CustomTextCLIP`` or ``CoCa``, or None for anything else."""
    if not any(c.__module__.startswith("open_clip.") and c.__name__ in OPEN_CLIP_CLASSES for c in type(module).__mro__):
        return None
    text: Any = getattr(module, "text", module)
    length = text.context_length if hasattr(text, "token_embedding") else 77  # as open_clip's tokenizers pad for them
    return ModuleClip(
        module=module,
        tokenizer=as_tokenizer(tokenizer, length, text.vocab_size),
        image_spec=image_spec or _open_clip_spec(module),
        image_tower=lambda m: m.visual,
        token_embedding=_token_embedding,
        image_features=lambda m, pixels: m.encode_image(pixels, normalize=False),
        text_features=lambda m, ids: m.encode_text(ids, normalize=False),
        tower=lambda m: resblock_tower(m, getattr(m, "text", m)),
    )


def _token_embedding(module: Any) -> nn.Module:
    text = getattr(module, "text", module)
    return text.token_embedding if hasattr(text, "token_embedding") else text.transformer.get_input_embeddings()


def _open_clip_spec(module: Any) -> ImageSpec:
    visual: Any = module.visual
    cfg: dict[str, Any] = getattr(visual, "preprocess_cfg", {})
    size = cfg.get("size", visual.image_size)
    return ImageSpec(
        size=(size, size) if isinstance(size, int) else (size[0], size[1]),
        mean=tuple(cfg.get("mean", ImageSpec.mean)),
        std=tuple(cfg.get("std", ImageSpec.std)),
        interpolation=cfg.get("interpolation", ImageSpec.interpolation),
        resize_mode=cfg.get("resize_mode", ImageSpec.resize_mode),
        fill=cfg.get("fill_color", ImageSpec.fill),
    )


def _known_name(name: str, names: list[str]) -> str:
    clean = name.replace("/", "-")
    if clean not in names:
        near = difflib.get_close_matches(clean.lower(), [n.lower() for n in names], n=4, cutoff=0.5)
        hint = [n for n in names if n.lower() in near]
        raise ValueError(
            f"load_open_clip: open_clip has no architecture {name!r}; near matches are {', '.join(hint) or 'none'}. "
            "open_clip.list_models() lists all; a folder is 'local-dir:path'"
        )
    return clean


def _known_weights(name: str, pretrained: str | Path | None, open_clip: Any) -> str | Path:
    tags = ", ".join(open_clip.list_pretrained_tags_by_model(name)) or "none"
    if pretrained is None:
        raise ValueError(
            f"load_open_clip: which weights of {name}? Pass pretrained=, a checkpoint file or one of the tags {tags}. "
            f"For random weights: wrap(open_clip.create_model({name!r}))"
        )
    if not (open_clip.is_pretrained_cfg(name, str(pretrained)) or Path(pretrained).is_file()):
        raise ValueError(
            f"load_open_clip: {str(pretrained)!r} is neither a file nor a tag of {name}; its tags are {tags}"
        )
    return pretrained


def _activation(name: str, tag: str, asked: bool | None, open_clip: Any) -> bool | None:
    """QuickGELU or not: as asked, else as the tag says, else (None) as the architecture says."""
    if asked is not None or not open_clip.is_pretrained_cfg(name, tag):
        return asked
    of_tag = bool(open_clip.get_pretrained_cfg(name, tag).get("quick_gelu", False))
    of_name = bool(open_clip.get_model_config(name).get("quick_gelu", False))
    if of_name and not of_tag:
        raise ValueError(
            f"load_open_clip: the architecture {name!r} has QuickGELU and the tag {tag!r} is registered without it; "
            "say which the weights were trained with, quick_gelu=True or quick_gelu=False"
        )
    return of_tag
