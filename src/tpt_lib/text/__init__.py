"""Prompts to text features, exactly, at a fraction of the usual cost."""

from tpt_lib.text.choose import text_engine
from tpt_lib.text.encode import encode_prompts

__all__ = ["encode_prompts", "text_engine"]
