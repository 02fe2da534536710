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
        replace: submodules of the original, and what takes their place in the copy.

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
    state = {name: _own(value, module, copy) for name, value in vars(module).items()}
    state["training"] = False
    state["_compiled_call_impl"] = None
    for tensors in ("_parameters", "_buffers"):
        state[tensors] = {n: t if t is None else _shared(t) for n, t in state[tensors].items()}
    state["_modules"] = {n: m if m is None else _mirror(m, memo) for n, m in module._modules.items()}
    vars(copy).update(state)
    return copy


def _own(value: Any, module: nn.Module, copy: nn.Module) -> Any:
    """Return an attribute of ``module`` for its copy: dicts are copied, methods set on the instance bind to the copy."""
    if isinstance(value, dict):
        return value.copy()
    if isinstance(value, MethodType) and value.__self__ is module:
        return MethodType(value.__func__, copy)
    if isinstance(value, partial) and module in value.args:
        return partial(value.func, *(copy if arg is module else arg for arg in value.args), **value.keywords)
    return value


def _shared(weight: Tensor) -> Tensor:
    """Return the weight without its gradient; a copy if it was made in inference mode, which autograd refuses."""
    return weight.clone() if weight.is_inference() else weight.detach()
