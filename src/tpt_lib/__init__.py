"""Test-time prompt tuning (Shu et al., NeurIPS 2022) for any CLIP-like model."""

from tpt_lib.adapters import load_open_clip, load_transformers, wrap
from tpt_lib.contexts import BiasNet, LearnedPrompt, gaussian_context, load_prompt
from tpt_lib.model import CausalBlock, CausalTower, ClipLike, ImageSpec, class_logits, encode_views
from tpt_lib.objectives import entropy, marginal_entropy, select_confident
from tpt_lib.prompts import ClassPrompts, class_prompts, conditional_context
from tpt_lib.text import InitialText, encode_prompts, initial_text, text_path
from tpt_lib.tuning import Tuned, tune_prompt
from tpt_lib.views import preprocess

__version__ = "0.1.0"

__all__ = [
    "BiasNet",
    "CausalBlock",
    "CausalTower",
    "ClassPrompts",
    "ClipLike",
    "ImageSpec",
    "InitialText",
    "LearnedPrompt",
    "Tuned",
    "class_logits",
    "class_prompts",
    "conditional_context",
    "encode_prompts",
    "encode_views",
    "entropy",
    "gaussian_context",
    "initial_text",
    "load_open_clip",
    "load_prompt",
    "load_transformers",
    "marginal_entropy",
    "preprocess",
    "select_confident",
    "text_path",
    "tune_prompt",
    "wrap",
]
