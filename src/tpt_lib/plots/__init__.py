"""Figures: each function returns a matplotlib ``Figure``, which the caller shows or saves."""
