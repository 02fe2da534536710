"""Copy the structure of a module and share its weights."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from types import MethodType
from typing import Any

from torch import Tensor, nn


def mirror(module: nn.Module, replace: Mapping[nn.Module, nn.Module]) -> nn.Module:
    """Return a structural copy of a module in eval mode that shares its weights.

    The copy takes some microseconds per submodule and is made for each call, so it is never stale. The original is only
    read, so several threads can share it. Weights are detached: gradients reach the inputs and nothing else. Hooks run,
    and ``torch.compile`` wrappers are removed.

    Args:
        module: the original, which is not changed.
        replace: submodules of the original, mapped to their replacements in the copy.

    Returns:
        The copy.

    >>> original = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Dropout())
    >>> copy = mirror(original, {})
    >>> copy[0].weight.data_ptr() == original[0].weight.data_ptr(), copy.training, original.training
    (True, False, True)
    """
    return _mirror(module, {id(old): new for old, new in replace.items()})


def _mirror(module: nn.Module, memo: dict[int, nn.Module]) -> nn.Module:
    if id(module) in memo:
        return memo[id(module)]
    if isinstance(inner := module._modules.get("_orig_mod"), nn.Module):
        memo[id(module)] = copy = _mirror(inner, memo)
        return copy
    memo[id(module)] = copy = module.__class__.__new__(module.__class__)
    state = {name: value.copy() if isinstance(value, dict) else value for name, value in vars(module).items()}
    for name, value in state.items():
        if isinstance(value, MethodType | partial):
            state[name] = _rebound(value, module, copy)
    state["training"] = False
    state["_compiled_call_impl"] = None
    for tensors in ("_parameters", "_buffers"):
        state[tensors] = {n: t if t is None else without_graph(t) for n, t in state[tensors].items()}
    state["_modules"] = {n: m if m is None else _mirror(m, memo) for n, m in module._modules.items()}
    vars(copy).update(state)
    return copy


def _rebound(value: MethodType | partial[Any], module: nn.Module, copy: nn.Module) -> MethodType | partial[Any]:
    """Return a method set on the instance, bound to the copy if it was bound to ``module``."""
    if isinstance(value, MethodType):
        return MethodType(value.__func__, copy) if value.__self__ is module else value
    return partial(value.func, *(copy if arg is module else arg for arg in value.args), **value.keywords)


def without_graph(tensor: Tensor) -> Tensor:
    """Return a tensor without its gradient; a copy if it was made in inference mode, which autograd refuses."""
    return tensor.clone() if tensor.is_inference() else tensor.detach()
