"""Identify a model: by its content for run files, by its objects for the text cache."""

from __future__ import annotations

import json
import warnings
from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from torch import Tensor, nn

from tpt_lib.content import digest, name_of
from tpt_lib.models.protocol import ClipLike

__all__ = ["tower_digest"]

UNKNOWN = "unknown"

_SETTINGS = (bool, int, float, str, type(None))

_NOT_CONTENT = ("training", "name_or_path", "_compiled_call_impl", "_is_torch_compile")

_HOLDING_PARTS = (
    "_parameters", "_buffers", "_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks"
)  # fmt: skip

TABLES = (*_HOLDING_PARTS, "_modules")

PROBE = "a photo of a cat, and 2 red_pandas (of Asia)."


def identify(model: ClipLike) -> dict[str, Any]:
    """Return everything about a model that results depend on. Run files and checkpoints identify a model by it.

    Args:
        model: the model.

    Returns:
        The keys ``model`` (its name), ``image_tower`` and ``text_tower`` (see ``tower_digest``), ``image_spec``,
        ``logit_scale`` and ``logit_bias``.

    >>> identify(model)["model"], list(identify(model))[1:4]
    ('CLIP', ['image_tower', 'text_tower', 'image_spec'])
    """
    towers = [getattr(model, "image_parts", None), getattr(model, "text_parts", None)]
    image = tower_digest(model, "image")
    text = tower_digest(model, "text") if any(towers) else image  # one digest of an undivided model
    spec = json.loads(json.dumps(vars(model.image_spec)))
    return {"model": _name(model), "image_tower": image, "text_tower": text, "image_spec": spec, **_scale(model)}


def identify_text(model: ClipLike) -> dict[str, Any]:
    """Return what ``identify`` returns, without the image tower: for a model that has none."""
    return {"model": _name(model), "text_tower": tower_digest(model, "text"), **_scale(model)}


def tower_digest(model: ClipLike, tower: Literal["image", "text"]) -> str:
    """Return a digest of one tower: its weights, and its layers with their settings, such as the activation.

    Convention:
        Functions and hooks that replace parts of a layer count by their names. The text tower includes the tokenizer, by
        the tokens of one sentence. Compiling a tower does not change it.

    Args:
        model: a model that ``wrap`` or a loader made, or your own. The digest covers the modules, weights and settings that
            its ``image_parts()`` or ``text_parts()`` returns. Without that method, its ``describe() -> str`` identifies both
            towers. A module with neither is not divided, and each digest covers all of it. Otherwise its ``name`` identifies
            both towers.
        tower: ``"image"`` or ``"text"``.

    Returns:
        A digest, the text of ``describe()``, ``"known as "`` and the name, or ``"unknown"``.

    >>> tower_digest(model, "image") == tower_digest(model, "text")
    False
    """
    parts: Any = getattr(model, f"{tower}_parts", None)
    divided, module, name = parts is not None, _module(model), getattr(model, "name", "")
    if not divided and callable(own := getattr(model, "describe", None)):
        return str(own())
    if not divided and module is None:
        return f"known as {name}" if name else UNKNOWN
    seen = parts() if divided else module_parts(module.modules() if module else ())
    tokens = [] if divided and tower == "image" else [model.tokenize([PROBE])]
    return _digest([*seen, *tokens])


def module_digest(module: nn.Module) -> str:
    """Return a digest of a whole module: its weights, and its layers with their settings.

    >>> module_digest(torch.nn.ReLU()) == module_digest(torch.nn.ReLU(inplace=True))
    False
    """
    return _digest(module_parts(module.modules()))


def _digest(parts: Iterable[object]) -> str:
    return digest([_content(part) for part in parts if not _is_compiled(part)])


def check_known(caller: str, identity: Mapping[str, Any], *files: Path) -> None:
    """Warn that a run with a model of unknown weights cannot be resumed, and refuse existing files.

    Args:
        caller: name of the function that writes the files, for messages.
        identity: what ``identify`` returned for the model.
        files: where the run is saved.

    Raises:
        ValueError: if one of the files exists and is not empty.
    """
    if UNKNOWN not in (identity["image_tower"], identity["text_tower"]):
        return
    why = (
        f"the weights of {identity['model']} cannot be seen, so it cannot be distinguished from another model. Give it a name "
        "that identifies its weights (model.name), or a method describe() that returns a string"
    )
    if found := next((file for file in files if file.is_file() and file.stat().st_size), None):
        raise ValueError(f"{caller}: {str(found)!r} exists and cannot be resumed: {why}. Or pass another file")
    warnings.warn(f"{caller}: this run cannot be resumed if it is stopped: {why}", stacklevel=3)


def module_parts(modules: Iterable[nn.Module]) -> list[object]:
    """Return modules with their settings (a tuple for each), functions, tensors and hooks."""
    parts: list[object] = list(modules)
    for own in [vars(module) for module in parts if not _is_compiled(module)]:
        parts.append(tuple((k, v) for k, v in own.items() if isinstance(v, _SETTINGS) and k not in _NOT_CONTENT))
        parts += [
            v for k, v in own.items() if k not in _NOT_CONTENT and (isinstance(v, Tensor) or callable(v))
        ]  # such as a mask
        tables = [own[name] for name in _HOLDING_PARTS]
        parts += [part for table in tables for part in table.values() if part is not None]
    return parts


def _content(part: object) -> object:
    return part if isinstance(part, Tensor | tuple) else name_of(part)


def _is_compiled(part: object) -> bool:
    """Return whether this is what ``torch.compile`` puts around a module."""
    return type(part).__module__.startswith("torch._dynamo")


def _name(model: ClipLike) -> str:
    module = _module(model)
    return getattr(model, "name", "") or type(model if module is None else module).__name__


def _scale(model: ClipLike) -> dict[str, float]:
    return {"logit_scale": float(model.logit_scale), "logit_bias": float(model.logit_bias)}


def _module(model: object) -> nn.Module | None:
    return next((each for each in (getattr(model, "module", None), model) if isinstance(each, nn.Module)), None)


@dataclass(frozen=True, eq=False)
class Fingerprint:
    """What text features depend on, by identity: modules, settings, hooks and weights.

    Keeps references to the parts so that their ids cannot be reused. Making and comparing it runs no tensor operation.

    Convention:
        A write through ``.data`` (``weight.data.mul_(2)``) leaves no trace in torch, so it is not seen. Call
        ``prompts.forget()`` after one. Optimizer steps, ``load_state_dict``, in-place operations and replaced weights
        are seen.

    Args:
        parts: modules, hooks and weights. A tuple is read as settings, and compared by value.
    """

    parts: list[object] = field(repr=False)
    marks: tuple[Hashable, ...] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "marks", tuple(_marks(self.parts)))

    def same(self, other: Fingerprint | None) -> bool:
        """Return whether both were made of the same parts, unchanged in between."""
        return other is not None and self.marks == other.marks

    @property
    def blind(self) -> bool:
        """Whether there are weights whose in-place changes leave no trace: those made in inference mode."""
        return any(isinstance(part, Tensor) and part.is_inference() for part in self.parts)

    @property
    def structure(self) -> tuple[Hashable, ...]:
        """Everything but the weights: ``(type, id)`` of modules and hooks, settings by value; hashable."""
        return tuple(mark for part, mark in zip(self.parts, self.marks, strict=True) if not isinstance(part, Tensor))


def text_fingerprint(model: ClipLike) -> Fingerprint | None:
    """Return the fingerprint of what the model's text features depend on.

    Args:
        model: the model that encodes the text.

    Returns:
        The fingerprint of the model as it is now, or None if the model has no ``text_parts()``.

    >>> text_fingerprint(model).same(text_fingerprint(model))
    True
    """
    parts = getattr(model, "text_parts", None)
    return None if parts is None else Fingerprint(list(parts()))


def _marks(parts: list[object]) -> Iterator[Hashable]:
    for part in parts:
        if isinstance(part, Tensor):
            version = -1 if part.is_inference() else part._version
            yield id(part), part.data_ptr(), version, part.dtype, part.shape
        else:
            yield part if isinstance(part, tuple) else (type(part), id(part))
