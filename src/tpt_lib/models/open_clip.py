"""Load and wrap open_clip models."""

from __future__ import annotations

import difflib
import pickle
import warnings
from dataclasses import replace
from operator import attrgetter
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from tpt_lib.models.causal_towers import resblock_tower
from tpt_lib.models.module_clip import ModuleClip, TokenizerLike, as_tokenizer
from tpt_lib.models.protocol import CausalTower, ImageSpec
from tpt_lib.models.weights_files import check_weights, weights_in

__all__ = ["load_open_clip"]

OPEN_CLIP_CLASSES = {"CLIP", "CustomTextCLIP", "CoCa"}


def load_open_clip(
    name: str,
    pretrained: str | Path | None = None,
    *,
    tokenizer: TokenizerLike | None = None,
    image_spec: ImageSpec | None = None,
    quick_gelu: bool | None = None,
    **kwargs: Any,
) -> ModuleClip:
    """Load an open_clip model with its weights, tokenizer and preprocessing.

    Args:
        name: an architecture of ``open_clip.list_models()``, or ``"local-dir:…"`` or ``"hf-hub:…"``, which hold their
            own weights.
        pretrained: a tag of ``open_clip.list_pretrained()``, or a checkpoint file: safetensors, or a state dict, which
            is loaded with ``weights_only=True``. Required unless ``name`` holds its own weights.
        tokenizer: tokenizer to use instead of the architecture's own (default None).
        image_spec: preprocessing to use instead of the one that belongs to the weights (default None).
        quick_gelu: whether the weights were trained with QuickGELU (default None: a tag determines it, and a file uses
            the setting of the architecture).
        **kwargs: passed to ``open_clip.create_model`` (``device=``, ``precision=``, …).

    Returns:
        The wrapped model.

    Raises:
        ValueError: if the architecture or the weights are unknown, do not fit each other, or could run code.
    """
    import open_clip

    if not isinstance(name, str):
        raise TypeError(f"load_open_clip: name must be a string, such as 'ViT-B-16', but got {name!r}")
    own = name.startswith(("local-dir:", "hf-hub:"))
    if own and pretrained is not None:
        raise ValueError(
            f"load_open_clip: {name!r} holds its own weights, so pretrained={str(pretrained)!r} has no effect"
        )
    if not own:
        name = _known_name(name)
        pretrained = _known_weights(name, pretrained)
        quick_gelu = _activation(name, str(pretrained), quick_gelu)
    for file in _weights_files(name, pretrained):
        check_weights("load_open_clip", file)
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
            f"load_open_clip: refused to load the weights {str(pretrained or name)!r}, because the file is broken or holds "
            "objects that could run code; pass safetensors or a state dict of tensors"
        ) from error
    except (RuntimeError, AttributeError, AssertionError, KeyError, StopIteration) as error:  # not weights of this kind
        if isinstance(error, RuntimeError) and "state_dict" not in str(error):
            raise
        raise ValueError(
            f"load_open_clip: the weights {str(pretrained or name)!r} do not fit {name!r}. {type(error).__name__}: {error}"
        ) from error
    wrapped = wrap_open_clip(module, tokenizer or open_clip.get_tokenizer(name), image_spec)
    assert wrapped is not None
    return replace(wrapped, name=f"{name} {Path(str(pretrained or '')).name}".strip())


def _known_name(name: str) -> str:
    """Return the name as open_clip spells it."""
    import open_clip

    names = open_clip.list_models()
    clean = name.replace("/", "-")
    if clean not in names:
        near = difflib.get_close_matches(clean.lower(), [n.lower() for n in names], n=4, cutoff=0.5)
        hint = [n for n in names if n.lower() in near]
        raise ValueError(
            f"load_open_clip: open_clip has no architecture {name!r}; near matches are {', '.join(hint) or 'none'}. "
            "open_clip.list_models() lists all; for a folder, write 'local-dir:path'"
        )
    return clean


def _known_weights(name: str, pretrained: str | Path | None) -> str | Path:
    """Return the weights if they are a tag of the architecture or a file."""
    import open_clip

    tags = ", ".join(open_clip.list_pretrained_tags_by_model(name)) or "none"
    if pretrained is None:
        raise ValueError(
            f"load_open_clip: pretrained is missing. Pass a checkpoint file or one of the tags of {name}: {tags}. "
            f"For random weights, use wrap(open_clip.create_model({name!r}))"
        )
    if not (open_clip.is_pretrained_cfg(name, str(pretrained)) or Path(pretrained).is_file()):
        raise ValueError(
            f"load_open_clip: {str(pretrained)!r} is neither a file nor a tag of {name}; its tags are {tags}"
        )
    return pretrained


def _weights_files(name: str, pretrained: str | Path | None) -> list[Path]:
    """Return the local files that the weights are read from; an empty list for a tag or a hub id."""
    if name.startswith("local-dir:"):
        return weights_in(Path(name.removeprefix("local-dir:")))
    import open_clip

    tag = name.startswith("hf-hub:") or open_clip.is_pretrained_cfg(name, str(pretrained))
    return [] if tag else [Path(str(pretrained))]


def _activation(name: str, tag: str, asked: bool | None) -> bool | None:
    """Return whether to use QuickGELU: as asked, else as the tag says, else None for the architecture's setting."""
    import open_clip

    if asked is not None or not open_clip.is_pretrained_cfg(name, tag):
        return asked
    of_tag = bool(open_clip.get_pretrained_cfg(name, tag).get("quick_gelu", False))
    of_name = bool(open_clip.get_model_config(name).get("quick_gelu", False))
    if of_name and not of_tag:
        raise ValueError(
            f"load_open_clip: the architecture {name!r} has QuickGELU and the tag {tag!r} is registered without it; "
            "pass quick_gelu=True or quick_gelu=False, whichever the weights were trained with"
        )
    return of_tag


def wrap_open_clip(
    module: nn.Module, tokenizer: TokenizerLike | None, image_spec: ImageSpec | None
) -> ModuleClip | None:
    """Wrap open_clip's ``CLIP``, ``CustomTextCLIP`` or ``CoCa``.

    Args:
        module: the model.
        tokenizer: as for ``wrap``.
        image_spec: as for ``wrap``.

    Returns:
        The wrapped model, or None for any other class.
    """
    if not any(c.__module__.startswith("open_clip.") and c.__name__ in OPEN_CLIP_CLASSES for c in type(module).__mro__):
        return None
    text = _text(module)
    length = text.context_length if hasattr(text, "token_embedding") else 77  # as open_clip's tokenizers pad for them
    return ModuleClip(
        module=module,
        tokenizer=as_tokenizer(tokenizer, length, text.vocab_size),
        image_spec=image_spec or _image_spec(module),
        image_tower=attrgetter("visual"),
        token_embedding=_token_embedding,
        image_features=_image_features,
        text_features=_text_features,
        tower=_tower,
    )


def _text(module: Any) -> Any:
    """Return the part that holds the text tower: ``CLIP`` itself, or the ``text`` of ``CustomTextCLIP`` and ``CoCa``."""
    return getattr(module, "text", module)


def _token_embedding(module: nn.Module) -> nn.Module:
    text = _text(module)
    return text.token_embedding if hasattr(text, "token_embedding") else text.transformer.get_input_embeddings()


def _image_features(module: Any, pixels: Tensor) -> Tensor:
    return module.encode_image(pixels, normalize=False)


def _text_features(module: Any, ids: Tensor) -> Tensor:
    return module.encode_text(ids, normalize=False)


def _tower(module: nn.Module) -> CausalTower | str:
    return resblock_tower(module, _text(module))


def _image_spec(module: Any) -> ImageSpec:
    visual = module.visual
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
