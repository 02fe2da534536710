"""Encode views and images as normalized image features."""

from tpt_lib.features.encode import encode_images, encode_views

__all__ = ["encode_images", "encode_views"]
