"""Normalize the names of datasets, methods and models, to look up published numbers by them."""

from __future__ import annotations

import re
from collections.abc import Mapping

from tpt_lib.methods.base import get_method, list_methods

__all__ = ["backbone_key", "dataset_key", "method_key", "model_key", "published_names"]

DATASETS = {
    "imagenet/val": "imagenet",
    "imagenet/validation": "imagenet",
    "flower102": "flowers102",
    "flowers": "flowers102",
    "oxfordflowers": "flowers102",
    "oxfordpets": "pets",
    "oxfordiiitpet": "pets",
    "stanfordcars": "cars",
    "fgvcaircraft": "aircraft",
    "food": "food101",
    "caltech": "caltech101",
}

OTHER_NAMES = {
    "bongardtpt": "tpt",
    "baselinetpt": "tptwithoutconfidenceselection",
    "80templates": "ensemble",
    "handcraftedensemble": "ensemble",
}

BACKBONES = {"rn50": "RN50", "vitb16": "ViT-B/16", "vitbasepatch16": "ViT-B/16", "resnet50": "ResNet-50"}


def dataset_key(name: str) -> str:
    """Return the normalized name of a dataset."""
    key = re.sub(r"[^a-z0-9/]", "", name.lower())
    return DATASETS.get(key, key)


def method_key(name: str, names: Mapping[str, str] | None = None) -> str:
    """Return the paper's name of a method, in lower case without punctuation, with the parts of a sum in a fixed order.

    Args:
        name: the method's name in the registry, its title or its function; or a sum of several, such as ``"TPT + CoOp"``.
        names: what ``published_names`` returned, for callers with many names (default: call it).

    >>> method_key("zero_shot_predict"), method_key("my method")
    ('clip', 'mymethod')
    >>> method_key("TPT + CoOp") == method_key("coop+tpt_predict")
    True
    """
    known = published_names() if names is None else names
    parts = (_without_suffix(part) for part in name.split("+"))
    return "+".join(sorted(known.get(part, part) for part in parts))


def published_names() -> dict[str, str]:
    """Return the paper's name of each method, by the method's name, title and function."""
    found = dict(OTHER_NAMES)
    for entry in map(get_method, (*list_methods(), *list_methods(online=True))):
        known_by = (entry.name, entry.title, getattr(entry.predict, "__name__", ""))
        if entry.published:
            found.update({_without_suffix(name): _letters(entry.published) for name in known_by if name})
    return found


def _without_suffix(name: str) -> str:
    return _letters(name).removesuffix("predict").removesuffix("classify")


def _letters(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())


def backbone_key(model: str) -> str | None:
    """Return the paper's name of a model with its authors' weights, or None if the paper does not use it."""
    return BACKBONES.get(model_key(model))


def model_key(model: str) -> str:
    """Return the normalized name of a model, without words for its authors' weights.

    >>> model_key("ViT-L/14") == model_key("ViT-L-14/openai")
    True
    """
    words = re.split(r"[^a-z0-9]+", model.lower())
    return "".join(word for word in words if word not in ("openai", "clip", "quickgelu"))
