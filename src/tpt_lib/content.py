"""Describe values by their content, identically in every process. Run files and checkpoints identify settings this way.

Convention:
    - Numbers, text, tensors, arrays and containers are described by value.
    - A function or class of an installed library is described by its name. Any other is described by its name and a
      digest of its bytecode, defaults, closure, and the functions, classes and constants of its module that it uses.
      Comments and its docstring do not count; another version of Python does.
    - Any other object is described by what ``pickle`` would store. Its own ``describe() -> str`` replaces that.
    - A value without content, such as a generator, is refused. A memory address is never part of a description.
"""

from __future__ import annotations

import copyreg
import functools
import hashlib
import sys
from collections.abc import Iterable
from pathlib import PurePath
from types import BuiltinFunctionType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any

import torch
from torch import Tensor

__all__ = ["ContentError", "describe", "digest", "name_of"]

ATOMS = (type(None), bool, int, float, complex, str, bytes, type(...), torch.dtype, torch.device, torch.Size)
LONGEST = 300  # characters of a container before a digest replaces it
NOT_CODE = {"__module__", "__qualname__", "__doc__", "__firstlineno__"}


class ContentError(ValueError):
    """Raised for a value that cannot be described by its content."""


def describe(value: Any) -> str:
    """Return a text that is equal for equal content, in every process, and different for different content.

    Args:
        value: anything; see the convention of this module.

    Returns:
        One line of text. A digest replaces long content.

    Raises:
        ContentError: if the value cannot be described by its content.

    >>> describe({"lr": 0.1, "select": functools.partial(tpt_lib.select_confident, fraction=0.5)})
    "{'lr': 0.1, 'select': tpt_lib.objectives.select_confident(fraction=0.5)}"
    """
    return _described(value, {})


def digest(values: Iterable[Any]) -> str:
    """Return a hash of values in order, as 16 hexadecimal digits.

    Args:
        values: tensors, which are hashed by dtype, shape and bytes, and anything else that ``describe`` takes.

    Returns:
        The digest.

    >>> digest([torch.zeros(2), 1]) == digest([torch.zeros(2), 1.0])
    False
    """
    found = hashlib.blake2b(digest_size=8)
    for value in values:
        if isinstance(value, Tensor):
            found.update(f"{value.dtype}{tuple(value.shape)}".encode())
            found.update(_bytes(value))
        else:
            found.update(f"{describe(value)}\n".encode())
    return found.hexdigest()


def name_of(value: Any) -> str:
    """Return the module and qualified name of a function or class, or of an object's class."""
    named = value if hasattr(value, "__qualname__") else type(value)
    return f"{named.__module__}.{named.__qualname__}"


Seen = dict[int, tuple[Any, str]]  # values with their descriptions, by id; keeping the values prevents reuse of ids


def _described(value: Any, seen: Seen) -> str:
    if type(value) in ATOMS:
        return repr(value)
    if id(value) not in seen:
        seen[id(value)] = value, "…"  # for a value that contains itself
        seen[id(value)] = value, _by_kind(value, seen)
    return seen[id(value)][1]


def _by_kind(value: Any, seen: Seen) -> str:
    import numpy as np

    own = None if isinstance(value, type) else getattr(value, "describe", None)
    if callable(own) and isinstance(text := own(), str):
        return f"{name_of(value)}({text})"
    if isinstance(value, Tensor):
        return f"tensor({value.dtype}, {tuple(value.shape)}, {digest([value])})"
    if isinstance(value, np.ndarray) and value.dtype != object:
        return f"array({value.dtype}, {value.shape}, {_hash(value.tobytes())})"
    if type(value) in (list, tuple, set, frozenset, dict):
        return _container(value, seen)
    if isinstance(value, functools.partial):
        given = [_described(each, seen) for each in value.args]
        given += [f"{key}={_described(each, seen)}" for key, each in sorted(value.keywords.items())]
        return f"{_described(value.func, seen)}({', '.join(given)})"
    if isinstance(value, MethodType):
        return f"{_described(value.__func__, seen)} of {_described(value.__self__, seen)}"
    if isinstance(value, BuiltinFunctionType):
        of = "" if isinstance(value.__self__, ModuleType | None) else f" of {_described(value.__self__, seen)}"
        return f"{name_of(value)}{of}"
    if isinstance(value, ModuleType):
        return value.__name__
    if isinstance(value, FunctionType | type | CodeType):
        return _code(value, seen)
    if callable(inner := getattr(value, "__wrapped__", None)):  # functools.cache
        return f"{name_of(type(value))}({_described(inner, seen)})"
    return _pickled(value, seen)


def _container(value: Any, seen: Seen) -> str:
    if isinstance(value, dict):
        parts = sorted(f"{_described(key, seen)}: {_described(each, seen)}" for key, each in value.items())
    else:
        parts = [_described(each, seen) for each in value]
    if isinstance(value, set | frozenset):
        parts.sort()
    text = ", ".join(parts)
    if len(text) > LONGEST:
        return f"{type(value).__name__} of {len(value)}#{_hash(text)}"
    kind = type(value).__name__
    ends = {"list": "[]", "tuple": "()", "dict": "{}"}.get(kind)
    return f"{ends[0]}{text}{ends[1]}" if ends else f"{kind}({text})"


def _pickled(value: Any, seen: Seen) -> str:
    """Return the description of an object from what ``pickle`` would store: a function, its arguments, a state."""
    try:
        special = copyreg.dispatch_table.get(type(value))
        parts = special(value) if special else value.__reduce_ex__(2)
    except Exception as error:  # an object's own methods may raise errors of any type
        raise ContentError(
            f"a {name_of(type(value))} cannot be described by its content ({type(error).__name__}: {error})"
        ) from error
    if isinstance(parts, str):
        return f"{value.__module__}.{parts}"
    make, given, state, *items = (*parts, None, None, None)[:5]
    stored = [make, given, state, *(None if each is None else list(each) for each in items)]
    return f"{name_of(type(value))}#{_hash(_described(stored, seen))}"


def _code(value: Any, seen: Seen) -> str:
    """Return the name of a function or class, with a digest of its code unless it belongs to an installed library."""
    if isinstance(value, CodeType):
        return f"code#{_hash(_described([*_instructions(value), value.co_consts], seen))}"
    if _is_of_library(value):
        return name_of(value)
    if isinstance(value, type):
        parts = [value.__bases__, _members(value)]
    else:
        constants = value.__code__.co_consts
        if value.__doc__ is not None:  # the docstring is the first constant
            constants = None, *constants[1:]
        cells = [_cell(cell) for cell in value.__closure__ or ()]
        parts = [*_instructions(value.__code__), constants, value.__defaults__, value.__kwdefaults__, cells]
        parts.append(_used_globals(value))
    return f"{name_of(value)}#{_hash(_described(parts, seen))}"


def _instructions(code: CodeType) -> list[Any]:
    return [code.co_code, code.co_names, code.co_varnames, code.co_freevars]


def _is_of_library(value: Any) -> bool:
    """Return whether a function or class is known by its name: importable, and part of an installed package."""
    module = sys.modules.get(value.__module__)
    found: Any = module
    for name in value.__qualname__.split("."):
        found = getattr(found, name, None)
    if found is not value:
        return False
    installed = {"site-packages", "dist-packages"} & set(PurePath(getattr(module, "__file__", None) or "").parts)
    return bool(installed) or value.__module__.partition(".")[0] in {"tpt_lib", *sys.stdlib_module_names}


def _members(owner: type) -> dict[str, Any]:
    """Return the functions and constants of a class."""
    found = {}
    for name, member in vars(owner).items():
        member = getattr(member, "__func__", getattr(member, "fget", getattr(member, "func", member)))
        if isinstance(member, FunctionType) or (type(member) in ATOMS and name not in NOT_CODE):
            found[name] = member
    return found


def _used_globals(function: FunctionType) -> dict[str, Any]:
    """Return the functions, classes and constants of its module that a function names."""
    names: set[str] = set()
    left = [function.__code__]
    while left:
        code = left.pop()
        names |= set(code.co_names)
        left += [each for each in code.co_consts if isinstance(each, CodeType)]
    known = {name: function.__globals__[name] for name in names if name in function.__globals__}
    kinds = (FunctionType, type, functools.partial)
    return {name: each for name, each in known.items() if isinstance(each, kinds) or type(each) in ATOMS}


def _cell(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # not filled yet
        return None


def _hash(content: str | bytes) -> str:
    data = content.encode("utf-8", "surrogatepass") if isinstance(content, str) else content
    return hashlib.blake2b(data, digest_size=8).hexdigest()


def _bytes(tensor: Tensor) -> memoryview:
    return tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().data
