"""Run online methods over a stream of images, and save and load their states."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from tpt_lib.methods.base import MethodEntry, OnlineMethod, get_method
from tpt_lib.models.identity import UNKNOWN, identify, module_digest
from tpt_lib.models.protocol import ClipLike
from tpt_lib.prediction import Prediction
from tpt_lib.prompts.class_prompts import ClassPrompts
from tpt_lib.text.encode import check_model
from tpt_lib.text.stored import prompts_digest
from tpt_lib.types import PathLike

__all__ = ["fold", "load_state", "save_state", "stream"]

FORMAT = "tpt_lib online state 1"
OnlineLike = str | OnlineMethod[Any] | Callable[..., OnlineMethod[Any]] | MethodEntry


def stream(
    method: OnlineLike,
    model: ClipLike | nn.Module,
    prompts: ClassPrompts | Sequence[str],
    features: Iterable[Tensor],
    *,
    state: object = None,
) -> Iterator[Prediction]:
    """Predict the images of a stream in order, each with what the method learned from those before it.

    Args:
        method: a name from ``list_methods(online=True)``, or what ``tda(…)`` and the others return, or what
            ``get_method("tda", preset="pets")`` returns.
        model: the model; a classifier for ``tent``.
        prompts: what ``class_prompts`` returned; the class names of a classifier.
        features: for each image the normalized features of its views ``(N, E)``, row 0 the plain image. A tensor ``(B, N, E)``
            is B images in this order. Results depend on the order. For ``tent``, batches of preprocessed images.
        state: where to begin (default None: from the method's initial state).

    Returns:
        An iterator of one prediction per image, or per batch for ``tent``. It reads an image when its prediction is requested.

    >>> prompts = tpt_lib.class_prompts(model, ["cat", "dog"])
    >>> [prediction.logits.shape for prediction in stream("tda", model, prompts, torch.eye(256)[:2, None])]
    [torch.Size([2]), torch.Size([2])]
    """
    return (found for _, found in _steps(as_online("stream", method), model, prompts, features, state))


def fold(
    method: OnlineLike,
    model: ClipLike | nn.Module,
    prompts: ClassPrompts | Sequence[str],
    features: Iterable[Tensor],
    *,
    state: object = None,
) -> Any:
    """Return the state that a method has after a stream of images.

    Args:
        method: a name from ``list_methods(online=True)``, or what ``tda(…)`` and the others return.
        model: the model.
        prompts: what ``class_prompts`` returned.
        features: for each image the normalized features of its views ``(N, E)``; see ``stream``.
        state: where to begin (default None: from the method's initial state).

    Returns:
        The last state; the first one if the stream is empty.

    >>> prompts = tpt_lib.class_prompts(model, ["cat", "dog"])
    >>> int(fold("tda", model, prompts, torch.eye(256)[:2, None]).positive.filled.sum())
    2
    """
    online = as_online("fold", method)
    state = _start(online, model, prompts) if state is None else state
    for now, _ in _steps(online, model, prompts, features, state):
        state = now
    return state


def save_state(
    state: object, path: PathLike, model: ClipLike | nn.Module, prompts: ClassPrompts | Sequence[str]
) -> None:
    """Save the state of an online method to a safetensors file, with what identifies the model and the prompts.

    Args:
        state: a dataclass of tensors, or of other such dataclasses.
        path: destination; written atomically.
        model: the model that the state was learned with. Its weights are read to identify it.
        prompts: the prompts that the state was learned with.

    >>> prompts = tpt_lib.class_prompts(model, ["cat", "dog"])
    >>> state = fold("tda", model, prompts, torch.eye(256)[:2, None])
    >>> save_state(state, folder / "state.safetensors", model, prompts)
    >>> [path.name for path in folder.iterdir()]
    ['state.safetensors']
    """
    from safetensors.torch import save_file

    tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in state_tensors("save_state", state).items()}
    identity = {"state": type(state).__name__, **_identity("save_state", model, prompts)}
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    partial = target.with_name(f".{target.name}.partial")
    save_file(tensors, partial, metadata=identity)
    partial.replace(target)


def load_state(
    method: OnlineLike, path: PathLike, model: ClipLike | nn.Module, prompts: ClassPrompts | Sequence[str]
) -> Any:
    """Load a saved state. Pass it to ``stream`` or ``fold`` as ``state=`` to continue bit for bit.

    Args:
        method: the method that the state belongs to, with the same capacities. Other settings may differ.
        path: a file that ``save_state`` wrote.
        model: the model. It must be that of the file.
        prompts: the prompts. They must be those of the file: names, template and context.

    Returns:
        The state, on the device of the prompts.

    Raises:
        ValueError: if the state belongs to another model, other prompts or another method, or ``save_state`` did not write it.

    >>> prompts = tpt_lib.class_prompts(model, ["cat", "dog"])
    >>> save_state(fold("tda", model, prompts, torch.eye(256)[:2, None]), folder / "tda.safetensors", model, prompts)
    >>> int(load_state("tda", folder / "tda.safetensors", model, prompts).positive.filled.sum())
    2
    """
    from safetensors import SafetensorError, safe_open

    empty = _start(as_online("load_state", method), model, prompts)
    wanted = state_tensors("load_state", empty)
    identity = {"state": type(empty).__name__, **_identity("load_state", model, prompts)}
    try:
        with safe_open(path, "pt") as file:
            known = file.metadata() or {}
            found = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except SafetensorError as error:
        raise ValueError(
            f"load_state: {path} is not a complete safetensors file ({error}); save the state again"
        ) from error
    if known.get("format") != FORMAT:
        raise ValueError(f"load_state: {path} was not written by save_state")
    for key, what in (("state", "another method"), ("model", "another model"), ("prompts", "other prompts")):
        if known.get(key) != identity[key]:
            raise ValueError(
                f"load_state: {path} has the state of {what}; start a new one with init(model, prompts), or pass the method, "
                "model and prompts that it was saved with"
            )
    shapes, others = ({name: (*x.shape, x.dtype) for name, x in of.items()} for of in (wanted, found))
    if shapes != others:
        name = min(name for name in {**shapes, **others} if shapes.get(name) != others.get(name))
        raise ValueError(
            f"load_state: {path} has {name} of {others.get(name)}, but this method's is {shapes.get(name)}; pass the capacity "
            "that it was saved with"
        )
    # A copy has the alignment of tensors that torch makes, on which the last bits of matrix products may depend.
    return rebuilt_state(empty, {name: tensor.to(wanted[name].device, copy=True) for name, tensor in found.items()})


def as_online(caller: str, method: OnlineLike) -> OnlineMethod[Any]:
    """Return an online method from its name, from the function that makes it, or as it is."""
    entry = get_method(method)
    if not entry.online:
        raise ValueError(
            f"{caller}: {entry.name!r} is an episodic method, which learns nothing from a stream; call it with features "
            "(B, N, E), or use classify, compare or evaluate"
        )
    made: Any = entry.predict
    return made if isinstance(made, OnlineMethod) else made()


def _start(online: OnlineMethod[Any], model: Any, prompts: Any) -> Any:
    """Return the initial state. Methods that take a classifier also take one here."""
    return online.init(model, prompts)


def _steps(
    online: OnlineMethod[Any], model: Any, prompts: Any, features: Iterable[Tensor], state: Any
) -> Iterator[tuple[Any, Prediction]]:
    state = _start(online, model, prompts) if state is None else state
    for views in features:
        state, found = online.step(model, prompts, state, views)
        yield state, found


def state_tensors(caller: str, state: Any, prefix: str = "") -> dict[str, Tensor]:
    """Return the tensors of a state by name, those of a nested dataclass as ``outer.inner``; None is left out."""
    if not dataclasses.is_dataclass(state):
        raise TypeError(
            f"{caller}: a state must be a dataclass of tensors, but {prefix.rstrip('.') or 'it'} is a {type(state).__name__}"
        )
    found: dict[str, Tensor] = {}
    for field in dataclasses.fields(state):
        value = getattr(state, field.name)
        if isinstance(value, Tensor):
            found[prefix + field.name] = value
        elif value is not None:
            found |= state_tensors(caller, value, f"{prefix}{field.name}.")
    return found


def rebuilt_state(like: Any, tensors: dict[str, Tensor], prefix: str = "") -> Any:
    """Return a state like another one with the tensors that ``state_tensors`` returned."""
    values = {field.name: getattr(like, field.name) for field in dataclasses.fields(like)}
    new = {
        name: tensors[prefix + name] if isinstance(value, Tensor) else rebuilt_state(value, tensors, f"{prefix}{name}.")
        for name, value in values.items()
        if value is not None
    }
    return dataclasses.replace(like, **new)


def _identity(caller: str, model: ClipLike | nn.Module, prompts: ClassPrompts | Sequence[str]) -> dict[str, str]:
    if not isinstance(prompts, ClassPrompts):
        assert isinstance(model, nn.Module), "names alone are those of a classifier"
        return {"format": FORMAT, "model": module_digest(model), "prompts": json.dumps(list(prompts))}
    assert isinstance(model, ClipLike)
    check_model(model, prompts)
    known = identify(model)
    if UNKNOWN in (known["image_tower"], known["text_tower"]):
        raise ValueError(
            f"{caller}: the weights of this model cannot be seen, so its states cannot be distinguished from those of another "
            "model; give it a name that identifies its weights (model.name), or a method describe() that returns a string"
        )
    return {"format": FORMAT, "model": json.dumps(known, sort_keys=True), "prompts": prompts_digest(prompts)}
