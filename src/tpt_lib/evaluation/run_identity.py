"""Describe methods and prompts in a run's settings, so that a run is only resumed with the same ones."""

from __future__ import annotations

import functools
from typing import Any

from tpt_lib import content
from tpt_lib.content import ContentError, digest
from tpt_lib.methods.base import registered_name
from tpt_lib.prompts.class_prompts import ClassPrompts

__all__ = ["describe", "prompts_digest"]


def describe(method: Any, prompts: Any = ()) -> str:
    """Return what a run knows a method by: its function and arguments by content, and a digest of the prompts it is given.

    Args:
        method: a method, or ``functools.partial`` of one.
        prompts: the prompts of the method: one ``ClassPrompts``, or a list of them.

    Returns:
        One line, the same in every process.

    Raises:
        ValueError: if the method has a part that cannot be described by its content, and no name in the registry.

    >>> describe(functools.partial(tpt_lib.tpt_predict, steps=2))
    'tpt_lib.methods.tpt.tpt_predict(steps=2)'
    """
    function: Any = method
    given: tuple[Any, ...] = ()
    keywords: dict[str, Any] = {}
    while isinstance(function, functools.partial):
        given, keywords = (*function.args, *given), {**function.keywords, **keywords}
        function = function.func
    try:
        text = _function(function)
        if isinstance(method, functools.partial):
            parts = [content.describe(each) for each in given]
            parts += [f"{key}={content.describe(each)}" for key, each in sorted(keywords.items())]
            text += f"({', '.join(parts)})"
    except ContentError as error:
        raise ValueError(
            f"a run cannot tell this method from another, {content.name_of(function)}: {error}. Pass what it holds as plain "
            "values or tensors; give the object a method describe() that returns a text; or register the function with "
            "@method(name=…), and change the name when you change the function"
        ) from error
    several = prompts if isinstance(prompts, list | tuple) else [prompts]
    return " on ".join([text, *([" + ".join(map(prompts_digest, several))] if several else [])])


def _function(function: Any) -> str:
    try:
        return content.describe(function)
    except ContentError:
        if name := registered_name(function):
            return f"the method {name!r}"
        raise


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
