"""Load and wrap open_clip models."""

from __future__ import annotations

from dataclasses import replace
from operator import attrgetter
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from tpt_lib.models.causal_towers import resblock_tower
from tpt_lib.models.module_clip import ModuleClip, TokenizerLike, as_tokenizer
from tpt_lib.models.open_clip_weights import activation, create, known_name, known_weights, tokenizer_of, weights_files
from tpt_lib.models.protocol import CausalTower, ImageSpec
from tpt_lib.models.weights_files import check_weights

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
        ConnectionError: if the weights or the tokenizer have to be downloaded and cannot be.
    """
    if not isinstance(name, str):
        raise TypeError(f"load_open_clip: name must be a string, such as 'ViT-B-16', but got {name!r}")
    own = name.startswith(("local-dir:", "hf-hub:"))
    if own and pretrained is not None:
        raise ValueError(
            f"load_open_clip: {name!r} holds its own weights, so pretrained={str(pretrained)!r} has no effect"
        )
    if not own:
        name = known_name(name)
        pretrained = known_weights(name, pretrained)
        quick_gelu = activation(name, str(pretrained), quick_gelu)
    for file in weights_files(name, pretrained):
        check_weights("load_open_clip", file)
    if quick_gelu is not None:
        kwargs["quick_gelu"] = quick_gelu
    module = create(name, None if own else str(pretrained), kwargs)
    wrapped = wrap_open_clip(module, tokenizer or tokenizer_of(name), image_spec)
    assert wrapped is not None
    return replace(wrapped, name=f"{name} {Path(str(pretrained or '')).name}".strip())


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
