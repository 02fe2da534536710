"""Write ``tests/project/api.txt``: every public name with its signature. ``--check`` fails if it is stale.

A change of the file is a change of what users call. Run ``python scripts/api.py`` to accept it, and note it in CHANGELOG.md.
"""

from __future__ import annotations

import argparse
import functools
import inspect
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, is_typeddict

import tpt_lib

sys.path.append(str(Path(__file__).parent))
from pages import write_or_check

SNAPSHOT = Path(__file__).parents[1] / "tests/project/api.txt"
COMMAND = "python scripts/api.py, if the change is meant, and note it in CHANGELOG.md"


def public_values() -> dict[str, Any]:
    """Return every public name once with its value: flat ones, then those that only a room has, as ``views.Crops``."""
    flat = {name: getattr(tpt_lib, name) for name in tpt_lib.__all__}
    rooms = {name: value for name, value in flat.items() if isinstance(value, ModuleType)}
    found = {name: value for name, value in flat.items() if name not in rooms}
    for room, module in rooms.items():
        found |= {f"{room}.{name}": getattr(module, name) for name in module.__all__ if name not in flat}
    return found


def lines_of(name: str, value: Any) -> Iterator[str]:
    """Yield the lines of one public name: its signature, and the public members of a class."""
    if not getattr(value, "__module__", "").startswith("tpt_lib."):  # data, or an alias of a type
        yield name
    elif is_typeddict(value):
        yield f"{name}: {_keys(value)}"
    elif inspect.isclass(value):
        yield f"class {name}" + ("" if getattr(value, "_is_protocol", False) else _signature(value))
        for base in reversed(value.__mro__):
            if base.__module__.startswith("tpt_lib."):
                yield from _members(name, base)
    else:
        yield f"{name}{_signature(value)}"


def snapshot() -> str:
    """Return the text of the snapshot."""
    values = public_values()
    lines = [line for name, value in values.items() for line in dict.fromkeys(lines_of(name, value))]
    return "\n".join([*lines, *_options(values)]) + "\n"


def _keys(options: type) -> str:
    return ", ".join(f"{key}: {_text(kind)}" for key, kind in options.__annotations__.items())


def _members(name: str, base: type) -> Iterator[str]:
    for key, member in vars(base).items():
        function = getattr(member, "__func__", member)
        if key.startswith("_"):
            continue
        if isinstance(member, (property, functools.cached_property)):
            yield f"  {name}.{key}"
        elif inspect.isfunction(function):
            yield f"  {name}.{key}{_signature(function)}"


def _signature(value: Any) -> str:
    try:
        signature = inspect.signature(value)
    except (TypeError, ValueError):  # an exception, or data
        return ""
    shown = [p.replace(annotation=p.empty, default=p.empty) for p in signature.parameters.values()]
    texts = [f"{one}{_typed(p)}" for one, p in zip(shown, signature.parameters.values(), strict=True)]
    star = next((i for i, p in enumerate(shown) if p.kind is p.KEYWORD_ONLY), None)
    if star is not None and not any(p.kind is p.VAR_POSITIONAL for p in shown):
        texts.insert(star, "*")
    result = signature.return_annotation
    return f"({', '.join(texts)})" + ("" if result in (None, "None", signature.empty) else f" -> {_text(result)}")


def _typed(parameter: inspect.Parameter) -> str:
    kind = "" if parameter.annotation is parameter.empty else f": {_text(parameter.annotation)}"
    return kind + ("" if parameter.default is parameter.empty else f" = {_default(parameter.default)}")


def _text(annotation: Any) -> str:
    return str(getattr(annotation, "__forward_arg__", annotation))


def _default(value: Any) -> str:
    if isinstance(value, functools.partial):
        keywords = "".join(f", {key}={_default(one)}" for key, one in value.keywords.items())
        return f"partial({_default(value.func)}{keywords})"
    return value.__qualname__ if inspect.isroutine(value) or inspect.isclass(value) else repr(value)


def _options(values: dict[str, Any]) -> Iterator[str]:
    """Yield the keywords behind every ``**options: Unpack[Options]``, once."""
    seen = {}
    for value in values.values():
        for name in re.findall(r"Unpack\[(\w+)\]", _signature(value)):
            seen[name] = getattr(sys.modules[value.__module__], name)
    for name, value in sorted(seen.items()):
        yield f"**{name}: {_keys(value)}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing, and fail if the file is stale")
    return write_or_check(SNAPSHOT, snapshot(), check=parser.parse_args().check, command=COMMAND)


if __name__ == "__main__":
    sys.exit(main())
