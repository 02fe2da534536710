"""The Python call that gives the result of the page."""

from __future__ import annotations

from functools import partial
from pprint import pformat
from typing import Any

import tpt_lib as tpt
from tpt_lib.app.choices import Choice, keywords_of

WIDTH = 88


def python_call(model_code: str, choice: Choice) -> str:
    """Return a program that gives the same prediction.

    Args:
        model_code: the Python expression that loads the model.
        choice: what the user chose. An upload is named by its file name.
    """
    keywords = keywords_of(choice.method, choice.settings)
    method = f"tpt.{_function(choice.method)}"
    if keywords:
        method = f"partial({method}, {', '.join(f'{name}={_code(value)}' for name, value in keywords.items())})"
    lines = ["from functools import partial", ""] if keywords else []
    names = pformat(list(choice.names), width=WIDTH, compact=True)
    return "\n".join(
        [
            *lines,
            "import tpt_lib as tpt",
            "",
            f"model = {model_code}",
            f"image = {choice.picture.code}",
            f"names = {names.replace(chr(10), chr(10) + ' ' * len('names = '))}",
            f"prompts = tpt.class_prompts(model, names, template={choice.template!r})",
            f"method = {method}",
            f"result = tpt.classify(model, image, prompts, method=method, n_views={choice.n_views}, seed={choice.seed})",
            "print(result)",
        ]
    )


def _function(method: str) -> str:
    """Return where a method's function is below ``tpt``."""
    function: Any = tpt.get_method(method).predict
    name = getattr(function, "__name__", "")
    if getattr(tpt, name, None) is function:
        return name
    return f"methods.{name}" if getattr(tpt.methods, name, None) is function else f"get_method({method!r}).predict"


def _code(value: Any) -> str:
    if isinstance(value, partial):
        inner = ", ".join(f"{name}={_code(own)}" for name, own in value.keywords.items())
        return f"partial(tpt.{value.func.__name__}, {inner})"
    return repr(value)
