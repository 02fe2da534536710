"""Write the Python call that gives the result of the page."""

from __future__ import annotations

from functools import partial
from pprint import pformat
from typing import Any

import tpt_lib as tpt
from tpt_lib.app.choices import Choice, keywords_of
from tpt_lib.app.stored import Sample
from tpt_lib.features.store import FeatureStore

WIDTH = 88


def python_call(model_code: str, choice: Choice) -> str:
    """Return a program that gives the same prediction.

    Args:
        model_code: the Python expression that loads the model.
        choice: what the user chose. An upload is named by its file name, a store by its folder as the owner of the server
            wrote it.
    """
    keywords = keywords_of(choice.method, choice.settings)
    method = f"tpt.{_function(choice.method)}"
    if keywords:
        method = f"partial({method}, {', '.join(f'{name}={_code(value)}' for name, value in keywords.items())})"
    lines = ["from functools import partial", ""] if keywords else []
    lines += ["import tpt_lib as tpt", "", f"model = {model_code}"]
    if isinstance(choice.source, Sample):
        return "\n".join([*lines, *_from_store(choice.source, method)])
    names = pformat(list(choice.names), width=WIDTH, compact=True)
    return "\n".join(
        [
            *lines,
            f"image = {choice.source.code}",
            f"names = {names.replace(chr(10), chr(10) + ' ' * len('names = '))}",
            f"prompts = tpt.class_prompts(model, names, template={choice.template!r})",
            f"method = {method}",
            f"result = tpt.classify(model, image, prompts, method=method, n_views={choice.n_views}, seed={choice.seed})",
            "print(result)",
        ]
    )


def _from_store(sample: Sample, method: str) -> list[str]:
    """Return the lines that run a method on a sample, after the model is loaded."""
    wanted, now = sample.store, FeatureStore.open(sample.store.path)
    code = f"tpt.FeatureStore.open({str(wanted.path)!r})"
    if wanted.model != now.model:
        code, now = f"{code}.of_model({wanted.model!r})", now.of_model(wanted.model)
    code += "" if wanted.view_seed == now.view_seed else f".seed({wanted.view_seed})"
    code += "" if wanted.n_views == now.n_views else f".first_views({wanted.n_views})"
    index = sample.index if wanted.indices is None else int(wanted.indices[sample.index])
    return [
        f"store = {code}",
        f"features, label = store[{index}]",
        "prompts = tpt.class_prompts(model, store.classes, template=store.template)",
        f"method = {method}",
        "result = method(model, prompts, features)",
        'print(result, "true label:", store.classes[label])',
    ]


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
