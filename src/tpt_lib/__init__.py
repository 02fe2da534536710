"""Test-time prompt tuning (Shu et al., NeurIPS 2022) for any CLIP-like model."""

from tpt_lib.adapters import load_open_clip, load_transformers, wrap
from tpt_lib.model import ClipLike, ImageSpec, class_logits, encode_views
from tpt_lib.views import preprocess

__version__ = "0.1.0"

__all__ = [
    "ClipLike",
    "ImageSpec",
    "class_logits",
    "encode_views",
    "load_open_clip",
    "load_transformers",
    "preprocess",
    "wrap",
]
