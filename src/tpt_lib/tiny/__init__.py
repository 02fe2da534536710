"""Load the embedded model and its drawings, to try TPT offline."""

from tpt_lib.tiny.drawings import load_tiny_bongard, load_tiny_drawings
from tpt_lib.tiny.model import load_tiny

__all__ = ["load_tiny", "load_tiny_bongard", "load_tiny_drawings"]
