"""The datasets that the methods' authors have settings for. A method's own settings are in its registry entry."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["FINE_GRAINED", "IMAGENET_VARIANTS", "PRESETS", "Presets", "check_preset", "on_each"]

Presets = Mapping[str, Mapping[str, Any]]

IMAGENET_VARIANTS = ("imagenet-a", "imagenet-v2", "imagenet-r", "imagenet-sketch")
FINE_GRAINED = (
    "flowers102", "dtd", "pets", "cars", "ucf101", "caltech101", "food101", "sun397", "aircraft", "eurosat"
)  # fmt: skip
PRESETS = ("imagenet", *IMAGENET_VARIANTS, *FINE_GRAINED)


def check_preset(preset: str) -> None:
    """Refuse a name that is not one of the datasets in ``PRESETS``."""
    if preset not in PRESETS:
        raise ValueError(
            f"preset: the methods' authors have no settings for {preset!r}, only for {', '.join(PRESETS)}; leave preset out to "
            "use the defaults, or give a method its own settings with functools.partial"
        )


def on_each(datasets: tuple[str, ...], **keywords: Any) -> Presets:
    """Return the same keywords for each dataset."""
    return dict.fromkeys(datasets, keywords)
