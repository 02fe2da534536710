"""Load and save CoOp and CoCoOp checkpoints, without running any code in them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from tpt_lib.models.weights_files import check_claims, damage
from tpt_lib.prompts.class_prompts import ClassPrompts
from tpt_lib.prompts.contexts import LearnedPrompt, MetaNet
from tpt_lib.types import PathLike, kind_of

__all__ = ["load_prompt", "save_prompt"]

NET_KEYS = [f"meta_net.{layer}.{part}" for layer in ("linear1", "linear2") for part in ("weight", "bias")]


def load_prompt(path: PathLike) -> LearnedPrompt:
    """Load a CoOp or CoCoOp checkpoint as those projects save it, without running any code in it.

    Args:
        path: a file with a dict that has ``state_dict``, or with the state dict itself; it holds ``ctx``, and CoCoOp's
            ``meta_net``. Optimizer and scheduler objects, which training saves too, are not restored.

    Returns:
        The learned context, for ``class_prompts(model, names, context=…)``.

    Raises:
        FileNotFoundError: if the file is missing.
        ValueError: if the file cannot be read, is not such a checkpoint, or holds values that do not fit or are not finite.
    """
    loaded = load_checkpoint(Path(path))
    state = loaded.get("state_dict", loaded) if isinstance(loaded, dict) else {}
    state = state if isinstance(state, dict) else {}
    state = {str(key).removeprefix("prompt_learner."): value for key, value in state.items()}
    if not isinstance(state.get("ctx"), Tensor):
        raise ValueError(
            f"load_prompt: {str(path)!r} holds no tensor 'ctx', so it is not a CoOp or CoCoOp prompt; its keys are "
            f"{', '.join(list(state)[:8]) or 'none'}"
        )
    parts = [state[key] for key in NET_KEYS if key in state]
    if parts and (len(parts) < len(NET_KEYS) or not all(isinstance(part, Tensor) for part in parts)):
        raise ValueError(
            f"load_prompt: {str(path)!r} has part of a CoCoOp network; it needs weight and bias of meta_net.linear1 and "
            f"meta_net.linear2, and has {', '.join(k for k in state if k.startswith('meta_net'))}"
        )
    _check_shapes(str(path), state)
    net = MetaNet(*(part.float() for part in parts)) if parts else None
    return LearnedPrompt(state["ctx"].float(), net)


def _check_shapes(path: str, state: dict[str, Any]) -> None:
    """Refuse a checkpoint by the first key whose tensor does not fit or is not finite."""
    shape = {key: tuple(state[key].shape) for key in ("ctx", *NET_KEYS) if key in state}
    fits = {"ctx": len(shape["ctx"]) in (2, 3)}
    weight1, bias1, weight2, bias2 = NET_KEYS
    if weight1 in shape:
        width, hidden = shape["ctx"][-1:], shape[weight1][:1]
        fits |= {weight1: len(shape[weight1]) == 2, bias1: shape[bias1] == hidden}
        fits |= {weight2: shape[weight2] == width + hidden, bias2: shape[bias2] == width}
    for key, fit in fits.items():
        if not fit or not state[key].is_floating_point():
            raise ValueError(
                f"load_prompt: in {path!r} {key!r} is {state[key].dtype} of shape {shape[key]}, which does not fit; ctx is "
                f"floats (L, D) or (K, L, D), here {shape['ctx']}, and meta_net maps the image features' width to D"
            )
        if not state[key].isfinite().all():
            raise ValueError(
                f"load_prompt: in {path!r} {key!r} has NaN or infinite values: learning diverged, or the file is damaged. "
                "Learn the prompt again, with a lower learning rate"
            )


def save_prompt(
    path: PathLike, prompt: ClassPrompts | LearnedPrompt, *, epoch: int = 0, val_result: float = 0.0, **more: Any
) -> None:
    """Save a context, and CoCoOp's network if there is one, in the format that CoOp, CoCoOp and ``load_prompt`` read.

    Args:
        path: destination; written atomically.
        prompt: the prompts, or a learned context.
        epoch: number of the epoch (default 0); CoOp's loader prints it.
        val_result: accuracy in percent (default 0); CoOp's loader prints it.
        **more: further entries of the file.

    >>> save_prompt(f"{folder}/model.pth.tar", tpt_lib.prompts.LearnedPrompt(torch.zeros(4, 256)))
    >>> tpt_lib.load_prompt(f"{folder}/model.pth.tar").context.shape
    torch.Size([4, 256])
    """
    if not isinstance(prompt, ClassPrompts | LearnedPrompt):
        raise TypeError(
            f"save_prompt: pass the path and then prompts or a LearnedPrompt, but got {kind_of(prompt)}; for a tensor: "
            "LearnedPrompt(context)"
        )
    if Path(path).is_dir() or not Path(path).parent.is_dir():
        raise FileNotFoundError(f"save_prompt: {str(path)!r} must be a file in an existing folder")
    state = {"ctx": prompt.context.detach().float().cpu()}
    if prompt.meta_net is not None:
        state |= {key: part.detach().float().cpu() for key, part in zip(NET_KEYS, prompt.meta_net.parts, strict=True)}
    part = Path(f"{path}.part")
    torch.save({"state_dict": state, "epoch": epoch, "val_result": val_result, **more}, part)
    part.replace(path)


class _Inert:
    """Replaces any class in a checkpoint that is not data. It is created and filled, but never run."""

    def __new__(cls, *_: Any, **__: Any) -> _Inert:
        return super().__new__(cls)

    def __setstate__(self, _: Any) -> None:
        return None


def _inert_dict(*_: Any) -> dict[Any, Any]:
    return {}


def load_checkpoint(path: Path) -> Any:
    """Return the content of a file, without running any code in it."""
    if not path.is_file():
        raise FileNotFoundError(f"load_prompt: there is no file {str(path)!r}")
    check_claims("load_prompt", path)
    loaded = _loaded(path)
    check_claims("load_prompt", path, loaded)
    return loaded


def _loaded(path: Path) -> Any:
    from torch.serialization import get_unsafe_globals_in_checkpoint, safe_globals

    try:
        if path.suffix == ".safetensors":
            from safetensors.torch import load_file

            return load_file(path)
        try:
            names = get_unsafe_globals_in_checkpoint(path)
            stand_ins: Any = [(_inert_dict if name.endswith("dict") else _Inert, name) for name in names]
        except ValueError:  # the format before torch 1.6, which cannot be listed beforehand
            stand_ins = []
        with safe_globals(stand_ins):
            return torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # readers raise errors of any type on a broken file
        raise ValueError(
            f"load_prompt: {str(path)!r} cannot be read as a checkpoint of tensors: {damage(path, error)}"
        ) from error
