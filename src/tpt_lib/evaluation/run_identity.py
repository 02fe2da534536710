"""Describe methods and prompts in the settings of a run, so that it is only resumed with the same ones."""

from __future__ import annotations

import functools
from typing import Any

from tpt_lib import content
from tpt_lib.content import ContentError
from tpt_lib.methods.base import registered_name
from tpt_lib.text.stored import prompts_digest

__all__ = ["describe"]


def describe(method: Any, prompts: Any = ()) -> str:
    """Return what identifies a method in a run: its function and arguments by content, and a digest of its prompts.

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
    known = " + ".join(f"prompts {prompts_digest(one)}" for one in several)
    return f"{text} on {known}" if several else text


def _function(function: Any) -> str:
    try:
        return content.describe(function)
    except ContentError:
        if name := registered_name(function):
            return f"the method {name!r}"
        raise
