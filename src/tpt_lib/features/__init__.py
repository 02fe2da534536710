"""Encode views and images as normalized image features, and keep them on disk."""

from tpt_lib.features.encode import encode_images, encode_views
from tpt_lib.features.store import FeatureStore

__all__ = ["FeatureStore", "encode_images", "encode_views"]
