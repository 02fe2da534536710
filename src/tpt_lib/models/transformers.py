"""Load and wrap transformers models: CLIP, SigLIP, SigLIP 2, Chinese-CLIP, AltCLIP."""

from __future__ import annotations

import pickle
from dataclasses import replace
from functools import partial
from operator import attrgetter
from pathlib import Path
from typing import Any

import torch
from einops import rearrange
from torch import Tensor, nn

from tpt_lib.models.causal_towers import clip_text_tower
from tpt_lib.models.module_clip import ModuleClip, TokenizerLike, as_tokenizer
from tpt_lib.models.protocol import ImageSpec
from tpt_lib.models.weights_files import check_weights, weights_in
from tpt_lib.text_files import read_json

__all__ = ["load_transformers"]

RESAMPLING = {0: "nearest", 1: "lanczos", 2: "bilinear", 3: "bicubic"}  # PIL's numbers

PAD_MASKED = {"ChineseCLIPModel", "AltCLIPModel"}  # BERT-like towers, trained with padding masked

CLASSES = {"CLIPModel", "SiglipModel", "Siglip2Model", *PAD_MASKED}


def load_transformers(path_or_id: str | Path, *, image_spec: ImageSpec | None = None, **kwargs: Any) -> ModuleClip:
    """Load a transformers model with its weights, tokenizer and preprocessing.

    Args:
        path_or_id: a folder or a hub id, as for ``from_pretrained``.
        image_spec: preprocessing to use instead of the one stored with the weights (default None).
        **kwargs: passed to ``AutoModel.from_pretrained`` (``dtype=``, ``revision=``, …).

    Returns:
        The wrapped model.

    Raises:
        ValueError: if the weights do not fit the model or could run code.
        TypeError: if the class of the model is unknown.
    """
    try:
        from transformers import AutoImageProcessor, AutoModel, AutoTokenizer
    except ImportError as error:
        raise ImportError('load_transformers needs transformers: pip install "tpt_lib[transformers]"') from error

    _check_folder(Path(path_or_id))
    # without this keyword, transformers asks on the terminal and waits
    trust = {"trust_remote_code": kwargs.pop("trust_remote_code", False)}
    try:
        module, info = AutoModel.from_pretrained(
            path_or_id, output_loading_info=True, ignore_mismatched_sizes=True, **trust, **kwargs
        )
    except pickle.UnpicklingError as error:
        raise ValueError(
            f"load_transformers: refused to load the weights of {str(path_or_id)!r}, because they are broken or hold objects "
            "that could run code; pass safetensors"
        ) from error
    if absent := sorted(map(str, [*info["missing_keys"], *info["mismatched_keys"]])):
        raise ValueError(
            f"load_transformers: the checkpoint {str(path_or_id)!r} does not fit {type(module).__name__}: "
            f"{len(absent)} weights are missing or have another shape, among them {', '.join(absent[:5])}"
        )
    try:
        if image_spec is None:
            image_spec = _processor_spec(AutoImageProcessor.from_pretrained(path_or_id, **trust))
        tokenizer = AutoTokenizer.from_pretrained(path_or_id, **trust)
    except (ValueError, TypeError, AttributeError, KeyError) as error:
        for file in sorted(Path(path_or_id).glob("*.json")):
            read_json("load_transformers", file)
        raise ValueError(
            f"load_transformers: the tokenizer or the image processor of {str(path_or_id)!r} cannot be read: {error}. Download "
            "the folder again"
        ) from error
    wrapped = wrap_transformers(module, tokenizer, image_spec)
    if wrapped is None:
        known = ", ".join(sorted(CLASSES))
        raise TypeError(
            f"load_transformers: {str(path_or_id)!r} is a {type(module).__name__}; known classes are {known}"
        )
    tokens, wanted = len(tokenizer), module.config.text_config.vocab_size
    if tokens < wanted // 2:  # transformers makes such a tokenizer if the folder lacks its files
        raise ValueError(
            f"load_transformers: the tokenizer of {str(path_or_id)!r} knows {tokens} tokens, the model {wanted}; its files "
            "(tokenizer.json) are missing. Download them into the folder"
        )
    return replace(wrapped, name=Path(path_or_id).name)


def _check_folder(folder: Path) -> None:
    """Refuse a folder that is missing or holds damaged weights. A hub id is left to transformers."""
    if folder.is_file() or (folder.is_absolute() and not folder.exists()):
        raise FileNotFoundError(
            f"load_transformers: {str(folder)!r} is not a folder; pass the one with config.json, or a hub id"
        )
    for file in weights_in(folder):
        check_weights("load_transformers", file)


def wrap_transformers(
    module: nn.Module, tokenizer: TokenizerLike | None, image_spec: ImageSpec | None
) -> ModuleClip | None:
    """Wrap a transformers ``CLIPModel``, ``SiglipModel``, ``Siglip2Model``, ``ChineseCLIPModel`` or ``AltCLIPModel``.

    Args:
        module: the model.
        tokenizer: as for ``wrap``. A processor also says how images are preprocessed.
        image_spec: as for ``wrap``.

    Returns:
        The wrapped model, or None for any other class.
    """
    kinds = {c.__name__ for c in type(module).__mro__ if c.__module__.startswith("transformers.")} & CLASSES
    if not kinds:
        return None
    config: Any = module.config
    kind, text = kinds.pop(), config.text_config
    processor = getattr(tokenizer, "image_processor", None)
    if image_spec is None:
        image_spec = _processor_spec(processor) if processor else _default_spec(kind, module)
    return ModuleClip(
        module=module,
        tokenizer=as_tokenizer(tokenizer, _context_length(text), text.vocab_size),
        image_spec=image_spec,
        image_tower=attrgetter("vision_model"),
        token_embedding=_token_embedding,
        image_features=_patch_features if kind == "Siglip2Model" else _image_features,
        text_features=_masked_text_features if kind in PAD_MASKED else _text_features,
        tower=clip_text_tower if kind == "CLIPModel" else partial(_no_tower, kind),
    )


def _token_embedding(module: Any) -> nn.Module:
    return module.text_model.get_input_embeddings()


def _no_tower(kind: str, _module: nn.Module) -> str:
    return f"{kind} is not a causal CLIP tower"


def _features(output: Any) -> Tensor:
    """Return the features, which are in an output object since transformers 5."""
    return output if isinstance(output, Tensor) else output.pooler_output


def _image_features(module: Any, pixels: Tensor) -> Tensor:
    return _features(module.get_image_features(pixel_values=pixels))


def _patch_features(module: Any, pixels: Tensor) -> Tensor:
    """Return features of SigLIP 2, which takes patches and their grid. Our views all have one size."""
    size = module.config.vision_config.patch_size
    patches = rearrange(pixels, "n c (h p) (w q) -> n (h w) (p q c)", p=size, q=size)
    grid = [pixels.shape[2] // size, pixels.shape[3] // size]
    return _features(
        module.get_image_features(
            pixel_values=patches,
            pixel_attention_mask=torch.ones(patches.shape[:2], dtype=torch.int64, device=pixels.device),
            spatial_shapes=torch.tensor([grid] * len(pixels)),
        )
    )


def _text_features(module: Any, ids: Tensor) -> Tensor:
    return _features(module.get_text_features(input_ids=ids))


def _masked_text_features(module: Any, ids: Tensor) -> Tensor:
    mask = (ids != module.config.text_config.pad_token_id).long()
    return _features(module.get_text_features(input_ids=ids, attention_mask=mask))


def _context_length(text: Any) -> int:
    """Return the length of a text. XLM-R counts positions from ``pad_token_id + 1``; Chinese-CLIP was trained with 52."""
    if text.model_type == "altclip_text_model":
        return min(77, int(text.max_position_embeddings) - int(text.pad_token_id) - 1)
    if text.model_type == "chinese_clip_text_model":
        return min(52, int(text.max_position_embeddings))
    return int(text.max_position_embeddings)


def _default_spec(kind: str, module: Any) -> ImageSpec:
    """Return the preprocessing that models of this class were trained with."""
    vision = module.config.vision_config
    half = (0.5, 0.5, 0.5)
    if kind == "Siglip2Model":
        side = int(vision.num_patches**0.5) * vision.patch_size
        return ImageSpec((side, side), half, half, "bilinear", "squash")
    size = (vision.image_size, vision.image_size)
    return ImageSpec(size, half, half, "bicubic", "squash") if kind == "SiglipModel" else ImageSpec(size)


def _processor_spec(processor: Any) -> ImageSpec:
    """Return the preprocessing of an image processor."""
    mean, std = tuple(processor.image_mean), tuple(processor.image_std)
    interpolation: Any = RESAMPLING[int(processor.resample)]
    if hasattr(processor, "max_num_patches"):
        side = int(processor.max_num_patches**0.5) * processor.patch_size
        return ImageSpec((side, side), mean, std, interpolation, "squash")
    size = dict(processor.size)
    if "height" in size and size["height"] is not None:
        return ImageSpec((size["height"], size["width"]), mean, std, interpolation, "squash")
    crop = dict(processor.crop_size)
    if {crop["height"], crop["width"]} != {size.get("shortest_edge")}:
        raise ValueError(
            f"wrap: the image processor resizes to {size} and then crops {crop}, which an ImageSpec cannot express; "
            "pass image_spec= with the nearest size"
        )
    return ImageSpec((crop["height"], crop["width"]), mean, std, interpolation, "shortest")
