"""Check the arguments of ``tune_prompt``: features, and a caller's functions with what they return."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from tpt_lib.features.check import check_unit
from tpt_lib.prompts.class_prompts import ClassPrompts, check_one_template
from tpt_lib.types import OptimizerFactory, Select, kind_of


def check_start(prompts: ClassPrompts, features: Tensor, steps: int) -> None:
    """Refuse prompts, features and numbers of steps that cannot be used."""
    check_one_template("tune_prompt", prompts)
    floats = isinstance(features, Tensor) and features.is_floating_point()
    if not floats or features.ndim not in (2, 3) or 0 in features.shape:
        raise ValueError(
            "tune_prompt: image_features must be floats of shape (N, E), or (B, N, E) for several images, but got "
            f"{kind_of(features)}; encode_views returns such features"
        )
    if steps < 0:
        raise ValueError(f"tune_prompt: steps must be 0 or more, but got {steps}")
    if steps and 0 in prompts.context.shape and prompts.name_tokens is None:
        raise ValueError(
            "tune_prompt: the template has no words besides the name, so there is no context to tune; "
            "give it some, as in 'a photo of a {}.', or pass steps=0"
        )


def check_features(unit: bool, features: Tensor) -> None:
    """Refuse features unless all are of unit length. ``unit`` is the result of ``are_unit``, so that it is read once."""
    if not unit:
        check_unit("tune_prompt", "image_features", features)


def check_selections(select: Select, selections: Sequence[Tensor], views: int) -> None:
    """Refuse the selections of each image unless they are indices of different views."""
    wanted = (
        f"tune_prompt: select must return the indices of one or more of the {views} views as a tensor of ints (M,), "
    )
    wanted += f"each in 0..{views - 1} and none twice, but {function_name(select)} returned "
    for kept in selections:
        ints = isinstance(kept, Tensor) and kept.dtype in (torch.int64, torch.int32)
        if not ints or kept.ndim != 1 or len(kept) == 0:
            raise ValueError(wanted + kind_of(kept))
    longest = max(map(len, selections))
    if longest > views:
        raise ValueError(f"{wanted}{longest} of them")
    bad = torch.stack([_any_wrong(kept, views) for kept in selections])
    if bad.any():
        raise ValueError(wanted + str(selections[int(bad.int().argmax())].tolist()))


def check_scalar(role: str, function: Callable[..., Any], of: str, value: Any, *, attached: bool) -> Tensor:
    """Return the value of an objective or a regularizer, if it is a scalar that gradients can pass."""
    if not isinstance(value, Tensor) or value.ndim != 0 or not value.is_floating_point():
        raise ValueError(
            f"tune_prompt: {role} must return a scalar, a float tensor of shape (), but {function_name(function)} returned "
            f"{kind_of(value)}; reduce it, for example with .mean()"
        )
    if attached and not value.requires_grad:
        raise unattached(role, function, of)
    return value


def unattached(role: str, function: Callable[..., Any], of: str) -> ValueError:
    return ValueError(
        f"tune_prompt: {role} must return a scalar that depends on the {of} it is given, but no gradient leads from what "
        f"{function_name(function)} returned to them; look for .detach(), .item(), argmax or torch.no_grad in it"
    )


def check_optimizer(factory: OptimizerFactory, made: Any) -> torch.optim.Optimizer:
    """Return an optimizer that a factory made, if it can take a step by itself."""
    wanted = "tune_prompt: optimizer must be a function that returns a torch.optim.Optimizer"
    if not isinstance(made, torch.optim.Optimizer):
        raise TypeError(f"{wanted}, but {function_name(factory)} returned {kind_of(made)}")
    closure = inspect.signature(type(made).step).parameters.get("closure")
    if closure is not None and closure.default is inspect.Parameter.empty:
        raise ValueError(
            f"{wanted} whose step() needs no closure, but {type(made).__name__} calls the objective again within a step; "
            "use another one, such as torch.optim.AdamW or SGD"
        )
    return made


def function_name(function: object) -> str:
    """Return the name of a function, or of the function inside a ``functools.partial``."""
    inner = inner_function(function)
    return getattr(inner, "__name__", type(inner).__name__)


def inner_function(function: object) -> object:
    """Return a function, or the one inside a ``functools.partial``."""
    while isinstance(function, functools.partial):
        function = function.func
    return function


def _any_wrong(kept: Tensor, views: int) -> Tensor:
    """Return whether any index is out of range or there twice, without a synchronization."""
    ordered = kept.sort().values
    return ((ordered < 0) | (ordered >= views)).any() | (ordered[1:] == ordered[:-1]).any()
