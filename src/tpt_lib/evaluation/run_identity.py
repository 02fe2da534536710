"""Describe methods and prompts in a run's settings, so that a run is only resumed with the same ones."""

from __future__ import annotations

import functools
from typing import Any

from tpt_lib.models.identity import digest
from tpt_lib.prompts.class_prompts import ClassPrompts

__all__ = ["describe", "prompts_digest"]


def describe(method: Any, prompts: Any) -> str:
    """Return a method's name, its keywords, and a digest of the prompts it is given.

    Args:
        method: a method, or ``functools.partial`` of one.
        prompts: the prompts of the method: one ``ClassPrompts``, or a list of them.

    Returns:
        One line, the same in every process.

    >>> describe(functools.partial(tpt_lib.tpt_predict, steps=2), [])
    'tpt_lib.methods.tpt.tpt_predict(steps=2) on '
    """
    keywords: dict[str, Any] = {}
    while isinstance(method, functools.partial):
        keywords = {**method.keywords, **keywords}
        method = method.func
    options = ", ".join(f"{key}={_named(value)}" for key, value in sorted(keywords.items()))
    several = prompts if isinstance(prompts, list | tuple) else [prompts]
    return f"{_named(method)}({options}) on {' + '.join(prompts_digest(one) for one in several)}"


def prompts_digest(prompts: ClassPrompts) -> str:
    """Return a digest of everything that the text features of prompts depend on, except the model."""
    parts = []
    for one in (prompts, *prompts.others):
        parts += [one.ids, one.roles, one.context]
        if one.name_tokens is not None:
            parts.append(one.name_tokens)
        if one.meta_net is not None:
            parts += one.meta_net.parts
    return f"prompts {digest(parts)}"


def _named(value: Any) -> str:
    if isinstance(value, functools.partial):
        return describe(value, [])
    return f"{value.__module__}.{value.__qualname__}" if hasattr(value, "__qualname__") else repr(value)
