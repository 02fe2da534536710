"""Wrap every architecture of open_clip, at reduced size and with random weights, and write docs/architectures.md.

``python scripts/architectures.py`` rewrites the page, ``--check`` exits with 1 if the page would change.
"""

from __future__ import annotations

import argparse
import logging
import sys
import zlib
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, TypeVar
from unittest.mock import patch

import open_clip
import timm
import torch
import torch.nn.functional as F
from einops import rearrange
from timm.models.vitamin import VitCfg, VitConvCfg
from torch import Tensor
from transformers import AutoConfig

from tpt_lib import wrap
from tpt_lib.features.encode import encode_views
from tpt_lib.models.protocol import CausalTower

PAGE = Path(__file__).parents[1] / "docs" / "architectures.md"
TEXTS = ["a photo of a cat.", "a blurry photo of two dogs"]
EMBED_DIM = 32  # and the width of timm towers, some of which have no projection
TEXT_SIZE = {"width": 64, "heads": 4, "layers": 2}
TOLERANCE = 1e-4

# The keys of these tables are parts of names; the first that matches counts.
VITAMIN_STEM = VitCfg((8, 16, EMBED_DIM), (1, 1, 1), 8, VitConvCfg(norm_layer="layernorm2d", norm_eps=1e-6), "1d")
TIMM_SIZES: dict[str, dict[str, Any]] = {
    "convnext": {"depths": (1, 1, 1, 1), "dims": (8, 16, 24, 32)},
    "fastvit_mci3": {"layers": (1, 1, 1, 1, 1), "embed_dims": (8, 16, 16, 32, 32)},
    "fastvit_mci4": {"layers": (1, 1, 1, 1, 1), "embed_dims": (8, 16, 16, 32, 32)},
    "fastvit": {"layers": (1, 1, 1, 1), "embed_dims": (8, 16, 16, 32)},
    "swin": {"depths": (2, 1, 1, 1), "embed_dim": 8, "num_heads": (1, 1, 1, 1)},
    "vit_base_mci": {"depth": 2},  # its stem fixes the width
    "vitamin": {"depth": 2, "embed_dim": EMBED_DIM, "num_heads": 2, "embed_cfg": VITAMIN_STEM},
    "": {"depth": 2, "embed_dim": EMBED_DIM, "num_heads": 2},
}

BERT = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 128}
MT5 = {"d_model": 64, "num_layers": 2, "num_decoder_layers": 1, "num_heads": 4, "d_kv": 16, "d_ff": 128}
M2M = {"d_model": 64, "encoder_layers": 2, "encoder_attention_heads": 4, "encoder_ffn_dim": 128, "decoder_layers": 1}
TRANSFORMERS_CONFIGS: dict[str, dict[str, Any]] = {
    "xlm-roberta": {"model_type": "xlm-roberta", "vocab_size": 250002, "max_position_embeddings": 514, **BERT},
    "roberta": {"model_type": "roberta", "vocab_size": 50265, "max_position_embeddings": 514, **BERT},
    "mt5": {"model_type": "mt5", "vocab_size": 250112, **MT5},
    "nllb": {"model_type": "m2m_100", "vocab_size": 256206, **M2M},
}

SPECIAL_IDS: dict[str, tuple[list[int], list[int], int]] = {  # before the words, after them, padding
    "SigLIP2": ([], [1], 0),
    "SigLIP": ([], [1], 1),
    "bert-base-uncased": ([101], [], 0),  # CLIPA strips the separator
    "mt5": ([], [1], 0),
    "nllb": ([256047], [2], 1),  # the language comes first
    "roberta": ([0], [2], 1),
    "xlm-v": ([0], [2], 1),
}

T = TypeVar("T")


class Row(NamedTuple):
    """What the page says about an architecture."""

    name: str
    model_class: str
    image_tower: str
    text_tower: str
    engine: str
    reason: str


def small_config(name: str) -> dict[str, Any]:
    """Return open_clip's own config of the architecture, with fewer and narrower layers and nothing else changed."""
    config: dict[str, Any] = open_clip.get_model_config(name)
    vision, text = config["vision_cfg"], config["text_cfg"]
    config["embed_dim"] = EMBED_DIM
    if "hf_model_name" in text:
        text["hf_model_pretrained"] = False
    else:
        text.update(TEXT_SIZE, width=EMBED_DIM if text.get("proj_type") == "none" else TEXT_SIZE["width"])
    if isinstance(vision.get("layers"), list):
        vision.update(layers=[1, 1, 1, 1], width=8)
    elif "timm_model_name" not in vision:
        vision.update(layers=1, width=64, head_width=16)
    if "multimodal_cfg" in config:
        config["multimodal_cfg"].update(TEXT_SIZE)
    return config


def build(name: str) -> Any:
    """Build the architecture with ``open_clip.create_model``, small, with small towers of timm and transformers."""
    torch.manual_seed(0)
    create = timm.create_model

    def small_timm(timm_name: str, **kwargs: Any) -> Any:
        return create(timm_name, **kwargs, **first_match(TIMM_SIZES, timm_name))

    def small_transformer(hf_name: str) -> Any:
        return AutoConfig.for_model(**first_match(TRANSFORMERS_CONFIGS, hf_name))

    config = small_config(name)
    config.pop("custom_text", None)  # create_model reads it from its own copy
    with (
        patch("timm.create_model", small_timm),
        patch("transformers.AutoConfig.from_pretrained", small_transformer),
    ):
        return open_clip.create_model(name, pretrained_text=False, **config)


def tokenizer_of(name: str) -> Callable[[list[str]], Tensor]:
    """Return open_clip's tokenizer, or a stand-in for one from the hub: hashed words between the real special ids."""
    text = open_clip.get_model_config(name)["text_cfg"]
    if "hf_tokenizer_name" not in text:
        return open_clip.get_tokenizer(name)
    before, after, pad = first_match(SPECIAL_IDS, text["hf_tokenizer_name"])
    length, words = text.get("context_length", 77), text.get("vocab_size", 32000) - 1000

    def tokenize(texts: list[str]) -> Tensor:
        rows = [[*before, *(1000 + zlib.crc32(w.encode()) % words for w in t.split()), *after] for t in texts]
        return torch.tensor([row + [pad] * (length - len(row)) for row in rows])

    return tokenize


def first_match(table: dict[str, T], name: str) -> T:
    """Return the value of the first key that is part of the name."""
    return table[next((key for key in table if key in name), name)]


def check(module: Any, tokenizer: Callable[[list[str]], Tensor]) -> str:
    """Assert that the wrapped module, left in train mode, computes what the module computes in eval mode.

    Returns:
        The reason for the full-length text engine, or an empty string if the packed one works.
    """
    model: Any = wrap(module.train(), tokenizer)
    ids = model.tokenize(TEXTS)
    embeddings = model.embed_tokens(ids).requires_grad_()
    pixels = torch.randn(2, 3, *model.image_spec.size)
    image_features, text_features = encode_views(model, pixels), model.encode_embeddings(embeddings, ids)
    text_features.square().sum().backward()
    tower = model.causal_tower()

    module.eval()
    with torch.no_grad():
        own_image = F.normalize(module.encode_image(pixels, normalize=False), dim=-1)
        own_text = module.encode_text(ids, normalize=False)
    assert image_features.shape == text_features.shape == (2, EMBED_DIM), "features of a wrong shape"
    assert image_features.isfinite().all(), "image features that are not finite"
    assert (image_features.norm(dim=-1) - 1).abs().max() < TOLERANCE, "image features that are not of unit length"
    assert (image_features - own_image).abs().max() < TOLERANCE, "image features unlike the module's own"
    assert (text_features - own_text).abs().max() < TOLERANCE, "text features unlike the module's own"
    assert (embeddings.grad.flatten(1).norm(dim=1) > 0).all(), "no gradient at the embeddings"
    assert all(weight.grad is None for weight in module.parameters()), "a gradient at the weights"
    if isinstance(tower, str):
        return tower
    opened_text = tower_features(tower, ids)
    assert (opened_text - own_text).abs().max() < TOLERANCE, "an opened tower unlike the module's own"
    return ""


def tower_features(tower: CausalTower, ids: Tensor) -> Tensor:
    """Compute text features from an opened tower, by plain causal attention over all positions."""
    x = tower.embed(ids) + tower.positions
    for block in tower.blocks:
        q, k, v = (rearrange(part, "n t (h d) -> n h t d", h=block.heads) for part in block.qkv(x))
        attended = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = block.merge(x, rearrange(attended, "n h t d -> n t (h d)"))
    return tower.finish(x[torch.arange(len(ids)), tower.pool(ids)])


def examine(name: str) -> Row:
    """Build, wrap and check one architecture."""
    model_class = ""
    try:
        module = build(name)
        model_class = type(module).__name__
        reason = check(module, tokenizer_of(name))
        engine = "full_length" if reason else "packed"
    except Exception as error:
        engine, reason = "not supported", f"{type(error).__name__}: {error}".splitlines()[0]
    return Row(name, model_class, *towers(name), engine, reason)


def towers(name: str) -> tuple[str, str]:
    """Describe the image and the text tower in a few words."""
    config = open_clip.get_model_config(name)
    vision, text = config["vision_cfg"], config["text_cfg"]
    native = "ModifiedResNet" if isinstance(vision.get("layers"), list) else "VisionTransformer"
    mask = "bidirectional" if text.get("no_causal_mask") else "causal"
    pooled = "class token" if text.get("embed_cls") else text.get("pool_type", "argmax")
    image_tower = f"timm {vision['timm_model_name']}" if "timm_model_name" in vision else native
    return image_tower, text.get("hf_model_name", f"{mask}, {pooled}")


def page(rows: list[Row]) -> str:
    """Return the text of docs/architectures.md."""
    engines = Counter(row.engine for row in rows)
    packed, full_length = engines["packed"], engines["full_length"]
    head = [Row("architecture", "model class", "image tower", "text tower", "engine", "reason"), Row(*["---"] * 6)]
    table = "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in [*head, *rows])
    return f"""# Architectures

`tpt_lib.wrap` supports {packed + full_length} of the {len(rows)} architectures of open_clip {open_clip.__version__}.
`python scripts/architectures.py` checks each one with random weights and writes this page. Image features, text features from
token embeddings and the opened text tower equal the module's own, and gradients reach the embeddings but no weight.

Each model comes from `open_clip.create_model` with its own config (masks, pooling, vocabulary, context length, image size) but
with fewer and narrower layers, also in the towers of timm and transformers. Tokenizers from the hub are replaced by stand-ins
with the same special ids.

{packed} architectures use the *packed* text engine, which computes the prefix that all classes share only once. It needs a
causal text tower pooled at the end of the text. {full_length} use the *full_length* engine, which runs the module as it is. See
[text features](text.md).

{table}
"""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; exit with 1 if the page would change")
    arguments = parser.parse_args()
    logging.disable(logging.WARNING)  # open_clip warns that the weights are random
    torch.set_num_threads(1)
    text = page([examine(name) for name in open_clip.list_models()])
    if not arguments.check:
        PAGE.write_text(text)
        print(f"wrote {PAGE}")
    elif not PAGE.exists() or PAGE.read_text() != text:
        print(f"{PAGE} is stale: run python scripts/architectures.py")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
