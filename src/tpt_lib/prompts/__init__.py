"""Build prompts from class names and templates, and load, save and draw their contexts."""

from tpt_lib.prompts.checkpoints import load_prompt, save_prompt
from tpt_lib.prompts.class_prompts import ClassPrompts, class_prompts, conditional_context
from tpt_lib.prompts.contexts import LearnedPrompt, MetaNet, gaussian_context

__all__ = [
    "ClassPrompts",
    "LearnedPrompt",
    "MetaNet",
    "class_prompts",
    "conditional_context",
    "gaussian_context",
    "load_prompt",
    "save_prompt",
]
