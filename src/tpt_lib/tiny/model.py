"""The embedded model: a CLIP with 4 million parameters, trained on emoji by ``scripts/train_tiny``, stored in 8 bits."""

from __future__ import annotations

import json
import re
import warnings
from collections import Counter
from dataclasses import replace
from functools import cache
from importlib.resources import files
from typing import Any

import torch
from torch import Tensor

from tpt_lib.models.module_clip import ModuleClip
from tpt_lib.models.open_clip import wrap_open_clip
from tpt_lib.models.protocol import ImageSpec

__all__ = ["load_tiny"]

FOLDER = files("tpt_lib.tiny")
SIZE, CONTEXT, SPREAD = 32, 32, 0.02  # pixels, tokens, and CLIP's initial standard deviation of token embeddings
ARCHITECTURE: dict[str, Any] = {  # the arguments of open_clip's CLIP
    "embed_dim": 192,
    "vision_cfg": {"layers": [1, 2, 2, 1], "width": 24, "image_size": SIZE},
    "text_cfg": {"context_length": CONTEXT, "vocab_size": 49408, "width": 128, "heads": 4, "layers": 3},
}
SPEC = ImageSpec((SIZE, SIZE), mean=(0.5,) * 3, std=(0.5,) * 3)
SCALE, TOKENS = ".scale", "token_embedding.weight"


def load_tiny() -> ModuleClip:
    """Load the embedded CLIP: drawings of 32 pixels, about four hundred names, no download.

    It was trained on emoji by five artists, for trying things out; ``docs/tiny.md`` is its model card. A class name with a
    word that it was not trained on gives a warning.

    Returns:
        The model.

    >>> tpt_lib.load_tiny()
    <tiny as ClipLike, images (32, 32)>
    """
    from safetensors.torch import load

    with torch.random.fork_rng(devices=[]):
        module = new_clip()
    unpack(module, load(FOLDER.joinpath("weights.safetensors").read_bytes()))
    wrapped = wrap_open_clip(module.eval().requires_grad_(False), tokenize, SPEC)
    assert wrapped is not None
    return replace(wrapped, name="tiny")


def new_clip() -> Any:
    """Return the architecture with new random weights. The token embeddings are the same every time."""
    from open_clip.model import CLIP

    module = CLIP(**ARCHITECTURE)
    tokens: Tensor = module.token_embedding.weight
    with torch.no_grad():
        tokens.copy_(torch.randn(tokens.shape, generator=torch.Generator().manual_seed(0)) * SPREAD)
    return module


def pack(module: Any) -> dict[str, Tensor]:
    """Return the weights as they are stored: matrices in 8 bits with a scale per row.

    Token embeddings are neither trained nor stored.
    """
    packed: dict[str, Tensor] = {}
    for name, weight in module.state_dict().items():
        if weight.ndim < 2:
            packed[name] = weight.clone()
        elif name != TOKENS:
            packed[name + SCALE] = weight.flatten(1).abs().amax(dim=1).clamp_min(1e-12) / 127
            packed[name] = (weight / _over(packed[name + SCALE], weight)).round().to(torch.int8).contiguous()
    return packed


def unpack(module: Any, packed: dict[str, Tensor]) -> None:
    """Load what ``pack`` returned into a ``new_clip()``."""
    state = {TOKENS: module.token_embedding.weight}
    for name, weight in packed.items():
        if not name.endswith(SCALE):
            scale = packed.get(name + SCALE)
            state[name] = weight if scale is None else weight * _over(scale, weight)
    module.load_state_dict(state)


def _over(scale: Tensor, weight: Tensor) -> Tensor:
    return scale.view(-1, *[1] * (weight.ndim - 1))


@cache
def known() -> dict[str, Any]:
    """Return the class names with their categories, and the other words of the captions."""
    return json.loads(FOLDER.joinpath("names.json").read_text(encoding="utf-8"))


def tokenize(texts: list[str]) -> Tensor:
    """Return CLIP's token ids ``(K, T)``, and warn about words that no caption had.

    Words that all texts share are taken as a template, and give no warning.
    """
    found = Counter(word for text in texts for word in dict.fromkeys(strange_words(text)))
    strange = [word for word, count in found.items() if count < len(texts)]
    if strange:
        warnings.warn(
            f"the embedded model was not trained on {', '.join(map(repr, strange))} and can only guess what that looks like. "
            "load_tiny_drawings().classes lists the names it knows; load_open_clip loads models that know more",
            stacklevel=2,
        )
    return _tokenizer()(texts)


def strange_words(text: str) -> list[str]:
    """Return the words of a text that are in no name the model knows and in no caption it was trained on."""
    names, words = _patterns()
    return [word for word in re.findall(r"\w+", names.sub(" ", text.lower())) if word not in words]


@cache
def _patterns() -> tuple[re.Pattern[str], frozenset[str]]:
    names = sorted(known()["names"], key=len, reverse=True)
    placeholder = {"x"}  # the placeholder of learned tokens
    return re.compile(rf"(?<!\w)({'|'.join(map(re.escape, names))})(?!\w)"), frozenset(known()["words"]) | placeholder


@cache
def _tokenizer() -> Any:
    from open_clip import SimpleTokenizer

    return SimpleTokenizer(context_length=CONTEXT)
