"""The interface of a CLIP-like model, and adapters that give it to existing models."""

from tpt_lib.models.identity import tower_digest
from tpt_lib.models.module_clip import ModuleClip
from tpt_lib.models.open_clip import load_open_clip
from tpt_lib.models.protocol import CausalBlock, CausalTower, ClipLike, ImageSpec
from tpt_lib.models.transformers import load_transformers
from tpt_lib.models.wrap import wrap

__all__ = [
    "CausalBlock",
    "CausalTower",
    "ClipLike",
    "ImageSpec",
    "ModuleClip",
    "load_open_clip",
    "load_transformers",
    "tower_digest",
    "wrap",
]
