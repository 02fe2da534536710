"""Save and load text features, so that those of a large vocabulary are computed only once."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import torch
from torch import Tensor

from tpt_lib.content import digest
from tpt_lib.models.identity import text_fingerprint
from tpt_lib.models.protocol import ClipLike
from tpt_lib.prompts.class_prompts import ClassPrompts
from tpt_lib.text.encode import check_model
from tpt_lib.text.initial import keep_features
from tpt_lib.types import PathLike

__all__ = ["load_text_features", "save_text_features"]

FORMAT = "tpt_lib text features 1"


def save_text_features(model: ClipLike, prompts: ClassPrompts, path: PathLike) -> None:
    """Save the prompts' text features to a safetensors file. They are computed in chunks if they are not cached yet.

    Args:
        model: the model the prompts were made for.
        prompts: what ``class_prompts`` returned; not those of CoCoOp, whose features depend on the image.
        path: destination; written atomically.

    >>> prompts = tpt_lib.class_prompts(model, ["cat", "dog", "red panda"])
    >>> save_text_features(model, prompts, folder / "names.safetensors")
    >>> [path.name for path in folder.iterdir()]
    ['names.safetensors']
    """
    from safetensors.torch import save_file

    identity = _identity("save_text_features", model, prompts)
    with torch.autocast(prompts.context.device.type, enabled=False):
        features = keep_features(model, prompts)
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    partial = target.with_name(f".{target.name}.partial")
    save_file({"features": features.cpu().contiguous()}, partial, metadata=identity)
    partial.replace(target)


def load_text_features(model: ClipLike, prompts: ClassPrompts, path: PathLike) -> None:
    """Load text features from a file and cache them with the prompts, as if they had been computed.

    Args:
        model: the model the prompts were made for. Its text tower must be that of the file.
        prompts: what ``class_prompts`` returned. Names, template and context must be those of the file.
        path: a file that ``save_text_features`` wrote.

    Raises:
        ValueError: if the file belongs to another text tower or other prompts, or ``save_text_features`` did not write it.

    >>> prompts, again = (tpt_lib.class_prompts(model, ["cat", "dog"]) for _ in range(2))
    >>> save_text_features(model, prompts, folder / "names.safetensors")
    >>> load_text_features(model, again, folder / "names.safetensors")
    >>> tpt_lib.zero_shot_predict(model, again, torch.eye(256)[:1]).label in again.names
    True
    """
    from safetensors import SafetensorError, safe_open

    identity = _identity("load_text_features", model, prompts)
    try:
        with torch.inference_mode(False), safe_open(path, "pt") as file:
            known = file.metadata() or {}
            stored = "features" in file.keys()  # noqa: SIM118
            features = file.get_tensor("features").to(prompts.context.device) if stored else None
    except SafetensorError as error:
        raise ValueError(
            f"load_text_features: {path} is not a complete safetensors file ({error}); save it again"
        ) from error
    if features is None or known.get("format") != FORMAT:
        raise ValueError(f"load_text_features: {path} was not written by save_text_features")
    for key, what in (("text_tower", "another text tower"), ("prompts", "other prompts (names, template or context)")):
        if known.get(key) != identity[key]:
            raise ValueError(
                f"load_text_features: {path} has the features of {what}; call save_text_features for this model and these "
                "prompts"
            )
    keep_features(model, prompts, features)


def _identity(caller: str, model: ClipLike, prompts: ClassPrompts) -> dict[str, str]:
    check_model(model, prompts)
    fingerprint = text_fingerprint(model)
    if fingerprint is None:
        raise ValueError(
            f"{caller}: this model has no text_parts(), so stored features cannot be matched with it; add that "
            "method, or compute the features again"
        )
    if prompts.meta_net is not None:
        raise ValueError(
            f"{caller}: the text features of a CoCoOp prompt depend on the image, so they cannot be stored"
        )
    settings = [part if isinstance(part, tuple) else type(part).__qualname__ for part in fingerprint.parts]
    weights = digest(part for part in fingerprint.parts if isinstance(part, Tensor))
    return {"format": FORMAT, "text_tower": _hash([settings, weights]), "prompts": prompts_digest(prompts)}


def prompts_digest(prompts: ClassPrompts) -> str:
    """Return a digest of everything that the text features of prompts depend on, except the model."""
    names = [] if prompts.name_tokens is None else [prompts.name_tokens]
    learned = [] if prompts.meta_net is None else prompts.meta_net.parts
    tensors = digest([prompts.ids, prompts.roles, prompts.lengths, prompts.context, *names, *learned])
    return _hash([prompts.names, prompts.prefix, tensors, [prompts_digest(one) for one in prompts.others]])


def _hash(value: object) -> str:
    return hashlib.blake2b(json.dumps(value, default=repr).encode(), digest_size=16).hexdigest()
