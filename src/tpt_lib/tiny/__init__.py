"""The embedded model and its drawings: TPT at work, offline, in a second."""

from tpt_lib.tiny.drawings import tiny_bongard_problems, tiny_samples
from tpt_lib.tiny.model import load_tiny

__all__ = ["load_tiny", "tiny_bongard_problems", "tiny_samples"]
