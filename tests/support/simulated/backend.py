"""How the simulated device is made known to torch, and when it is available."""

import contextlib
import copy
import functools
import unittest.mock

import torch
import torch.utils.backend_registration as registration
from support.simulated.counts import Counts, active, current_counts
from support.simulated.tensor import DEVICE, FREE, SimulatedTensor, run
from torch.utils._pytree import tree_map_only

AVAILABLE = hasattr(registration, "_setup_privateuseone_for_python_backend")
WHY_NOT = "torch has no Python backends before 2.9"
FACTORIES = """
    empty.memory_format empty_strided arange arange.start arange.start_step linspace eye eye.m randperm randperm.generator
    tril_indices triu_indices
"""
IN_HALF = "linear matmul mm bmm addmm baddbmm mv addmv conv1d conv2d conv3d scaled_dot_product_attention"
IN_FLOAT = "layer_norm group_norm softmax.int log_softmax.int norm.ScalarOpt_dim exp log pow.Tensor_Scalar rsqrt"
CAST_BY_AUTOCAST = (torch.float16, torch.bfloat16, torch.float32)


@contextlib.contextmanager
def counting():
    """Make the device available, and yield the ``Counts`` of what it does in the block; an inner block counts for itself.

    Backward passes run in the calling thread, because torch has no thread for the device; see ``register``. Pinned memory is
    plain memory.
    """
    register()
    active.append(Counts())
    try:
        with (
            unittest.mock.patch.object(torch.Tensor, "pin_memory", lambda tensor, device=None: tensor),
            unittest.mock.patch.object(torch.autograd, "_engine_run_backward", _backward_in_this_thread),
        ):
            yield active[-1]
    finally:
        active.pop()


def to_simulated(module):
    """Return a copy of a module with its weights on the device."""
    register()
    return copy.deepcopy(module).to(DEVICE)


@functools.cache
def register():
    """Register the device with torch, once per process.

    The first backward pass of a process starts a thread for each device, and a forked process with such threads refuses to run
    any. So one is run before the device is known.
    """
    torch.ones((), requires_grad=True).backward()
    registration._setup_privateuseone_for_python_backend("sim", Backend())
    kernels = torch.library.Library("aten", "IMPL", "PrivateUse1")
    for name in FACTORIES.split():
        kernels.impl(name, functools.partial(_make, _overload(name)))
    kernels.impl("_copy_from", _copy_from)
    casts = torch.library.Library("aten", "IMPL", "AutocastPrivateUse1")
    for names, dtype in ((IN_HALF, None), (IN_FLOAT, torch.float32)):
        for name in names.split():
            casts.impl(name, functools.partial(_cast_and_run, _overload(name), dtype))
    others = torch.library.Library("_", "IMPL")
    others.fallback(torch.library.fallthrough_kernel, "AutocastPrivateUse1")
    return kernels, casts, others  # torch forgets kernels when their library is deleted


class Backend(getattr(registration, "_DummyBackendModule", object)):
    """What torch asks about the device, as ``torch.sim``."""

    def is_available(self):
        return bool(active)

    def device_count(self):
        return 1 if active else 0

    def get_amp_supported_dtype(self):
        return [torch.float16, torch.bfloat16]

    def synchronize(self, *_):
        current_counts().wait()


def _backward_in_this_thread(*args, **kwargs):
    with torch.autograd.set_multithreading_enabled(False):
        return torch.autograd.graph._engine_run_backward(*args, **kwargs)


def _overload(name):
    packet, _, overload = name.partition(".")
    return getattr(getattr(torch.ops.aten, packet), overload or "default")


def _make(operation, *args, device=None, pin_memory=None, **kwargs):
    """Run an operation that makes a tensor on the device from none."""
    name = operation._schema.name.removeprefix("aten::")
    if name not in FREE:
        current_counts().launch(name)
    return SimulatedTensor(operation(*args, device=torch.device("cpu"), **kwargs))


def _copy_from(source, target, non_blocking=False):
    """Copy between devices, for ``torch.tensor(..., device=...)``, which torch runs below ``__torch_dispatch__``."""
    return run(torch.ops.aten.copy_.default, (target, source, non_blocking), {})


def _cast_and_run(operation, dtype, *args, **kwargs):
    """Run an operation in ``dtype``, by default autocast's own, as autocast on CUDA does."""
    dtype = dtype or torch.get_autocast_dtype("sim")

    def cast(x):
        return x.to(dtype) if x.dtype in CAST_BY_AUTOCAST else x

    args, kwargs = tree_map_only(SimulatedTensor, cast, (args, kwargs))
    key = torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastPrivateUse1)
    with torch._C._ExcludeDispatchKeyGuard(key):
        return operation(*args, **kwargs)
