"""The norms that TENT tunes: which they are, and their weights as one row of numbers."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from tpt_lib.methods.tune_weights import Rows, named_weights
from tpt_lib.models.module_clip import ModuleClip
from tpt_lib.models.protocol import ClipLike


def tower(model: ClipLike | nn.Module) -> nn.Module:
    """Return the image tower of a CLIP, or the classifier itself."""
    if isinstance(model, ModuleClip):
        return model.image_tower(model.module)
    if isinstance(model, nn.Module):
        return model
    raise TypeError(
        "tent: model must be a classifier, or a model that wrap or a loader made, which shows its weights, but got "
        f"{type(model).__name__}"
    )


def has_batch_norms(model: ClipLike | nn.Module) -> bool:
    """Return whether the image tower, or the classifier, has batch norms, which use the statistics of a batch."""
    return any(isinstance(part, _BatchNorm) for part in tower(model).modules())


def norm_weights(model: ClipLike | nn.Module) -> list[tuple[str, Tensor]]:
    """Return the weights of the norms by all their names in the whole module."""
    norms = [part for part in tower(model).modules() if isinstance(part, nn.LayerNorm | _BatchNorm)]
    own = {id(weight) for norm in norms for weight in norm.parameters(recurse=False)}
    whole = model.module if isinstance(model, ModuleClip) else tower(model)
    found = [(name, weight) for name, weight in named_weights(whole) if id(weight) in own]
    if not found:
        raise ValueError(
            f"tent: {type(whole).__name__} has no layer norm or batch norm with weights, so there is nothing to tune"
        )
    return found


def unique(weights: list[tuple[str, Tensor]]) -> dict[int, Tensor]:
    """Return each weight once, by its identity."""
    return {id(weight): weight for _, weight in weights}


def in_one_row(weights: Sequence[Tensor]) -> Float[Tensor, " p"]:
    """Return the values of weights in one row."""
    return torch.cat([weight.detach().float().flatten() for weight in weights])


def in_shapes(weights: list[tuple[str, Tensor]], row: Float[Tensor, " p"]) -> dict[int, Tensor]:
    """Return the values of a row in the shapes of the weights, by their identity."""
    known = unique(weights)
    sizes = [weight.numel() for weight in known.values()]
    if sum(sizes) != len(row):
        raise ValueError(
            f"tent: the state has {len(row)} weights of norms, but this model has {sum(sizes)}; start with the init of this "
            "method"
        )
    pairs = zip(known.items(), row.split(sizes), strict=True)
    return {at: values.reshape(weight.shape) for (at, weight), values in pairs}


def use_batch_statistics(rows: Rows) -> None:
    """Remove the running statistics from the batch norms of a copy, which then use those of the batch."""
    for part in rows.module.modules():
        if isinstance(part, _BatchNorm):
            part._buffers = dict.fromkeys(part._buffers)
