"""Tune a prompt to the views of an image."""

from tpt_lib.tuning.tune import Tuned, tune_prompt

__all__ = ["Tuned", "tune_prompt"]
