"""Compute the text features of prompts, exactly, at a fraction of the usual cost."""

from tpt_lib.text.choose import text_engine
from tpt_lib.text.encode import encode_prompts
from tpt_lib.text.stored import load_text_features, save_text_features

__all__ = ["encode_prompts", "load_text_features", "save_text_features", "text_engine"]
