"""Check the arguments of ``class_prompts``: names, and an initial context or name tokens."""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Iterable, Mapping, Sequence, Set
from typing import Any

from torch import Tensor

from tpt_lib.prompts.templates import short
from tpt_lib.types import kind_of

__all__ = ["check_start", "checked_texts", "listed_names", "warn_of_twins"]

WHITESPACE = re.compile(r"[ \t\n\r]+")  # tokenizers do not agree on Python's other spaces

SURROGATE = re.compile("[\ud800-\udfff]")

CHECKPOINTS = (".pt", ".pth", ".tar", ".safetensors")


def listed_names(caller: str, names: Any) -> list[str]:
    """Return the names as a list. Labels are indices into it, so a set, which has no order, is refused."""
    listed = list(names) if isinstance(names, Iterable) and not isinstance(names, str | Set | Mapping) else []
    if not listed and isinstance(names, Sequence) and not isinstance(names, str):
        raise ValueError(f"{caller} is empty; at least one class is needed")
    if not listed or not all(isinstance(name, str) for name in listed):
        got = f"a {type(names).__name__}, which has no order" if isinstance(names, Set) else repr(names)
        raise TypeError(f"{caller} must be a list of strings, but got {got}; for one class, pass ['cat']")
    return [str(name) for name in listed]


def warn_of_twins(names: list[str], texts: list[str]) -> None:
    """Warn about classes with the same text: their probabilities are equal, and the later ones are never predicted."""
    first: dict[str, int] = {}
    twins = [(first[text], at) for at, text in enumerate(texts) if first.setdefault(text, at) != at]
    if twins:
        one, two = twins[0]
        warnings.warn(
            f"class_prompts: {len(twins)} of {len(names)} classes have the same name as another, such as {one} and {two}, "
            f"{short(names[two])}. Their probabilities are equal and only the first is predicted; give them different names",
            stacklevel=3,
        )


def check_start(what: str, value: object, others: tuple[type, ...]) -> None:
    """Refuse a context or name tokens of a wrong kind, such as a path that would be read as words."""
    if value is None or (isinstance(value, others) and not str(value).endswith(CHECKPOINTS)):
        return
    if not isinstance(value, Tensor):
        path = isinstance(value, str | os.PathLike)
        hint = "load_prompt(path) reads one from a file" if path else "torch.as_tensor makes one from numbers"
        wanted = "words, a tensor or what load_prompt returned" if others else "a tensor"
        raise TypeError(f"class_prompts: {what} must be {wanted}, but got {repr(value)[:80]}; {hint}")
    if not value.is_floating_point() or value.ndim < 2 or not value.isfinite().all():
        raise ValueError(
            f"class_prompts: {what} must be finite floats of at least two dimensions, but got {kind_of(value)}"
            + ("" if not value.is_floating_point() or value.isfinite().all() else " with NaN or infinite values")
        )


def checked_texts(names: Sequence[str]) -> list[str]:
    texts = [WHITESPACE.sub(" ", name.replace("_", " ")).strip(" ") for name in names]
    for at, (name, text) in enumerate(zip(names, texts, strict=True)):
        if not text:
            raise ValueError(
                f"class_prompts: class {at} of {len(names)} has an empty name, {short(name)}; give every class one"
            )
        if SURROGATE.search(text):
            raise ValueError(
                f"class_prompts: class {at} of {len(names)}, {short(name)}, is not text: it holds half of a surrogate pair, as "
                "if from a file that was read in the wrong encoding"
            )
    return texts
