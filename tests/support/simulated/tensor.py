"""Tensors of the simulated device, and what each operation on them counts as."""

import contextlib
import functools

import torch
from support.simulated.counts import current_counts
from torch.utils._pytree import tree_map_only

DEVICE = "sim:0"
FREE = {"_unsafe_view", "_local_scalar_dense", "empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided"}
WAITING = {
    "_linalg_check_errors", "_pack_padded_sequence", "_unique", "_unique2", "allclose", "bincount", "equal", "isin",
    "masked_select", "nonzero", "unique_consecutive", "unique_dim",
}  # fmt: skip
INDEXING = {"index", "index_put", "index_put_", "_index_put_impl_"}


class SimulatedTensor(torch.Tensor):
    """A tensor that says it is on the device, with ``values`` on the CPU."""

    @staticmethod
    def __new__(cls, values):
        layout = {"strides": values.stride(), "storage_offset": values.storage_offset(), "dtype": values.dtype}
        return torch.Tensor._make_wrapper_subclass(cls, values.shape, **layout, device=torch.device(DEVICE))

    def __init__(self, values):
        self.values = values

    @classmethod
    def __torch_dispatch__(cls, operation, types, args=(), kwargs=None):
        return run(operation, args, kwargs or {})

    @property
    def data(self):
        return self.detach()

    @data.setter
    def data(self, other):
        torch.Tensor.data.__set__(self, other)
        self.values = other.values

    def __repr__(self, **_):
        return f"SimulatedTensor({self.values}, device='{DEVICE}')"

    def __format__(self, spec):
        return format(self.item(), spec) if self.ndim == 0 else repr(self)

    def tolist(self):
        return self.cpu().tolist()

    def numpy(self, **_):
        raise TypeError(f"can't convert {DEVICE} device type tensor to numpy. Use Tensor.cpu() to copy it to the host.")

    def __array__(self, *_, **__):
        return self.numpy()


def on_host(value):
    """Return tensors, or a structure that holds some, as CPU tensors with the same values; nothing is counted."""
    return tree_map_only(SimulatedTensor, lambda tensor: tensor.values.detach().clone(), value)


def run(operation, args, kwargs):
    """Count an operation, compute it on the CPU, and wrap its result."""
    name = operation._schema.name.removeprefix("aten::")
    refuse_strangers(name, args, kwargs)
    to_host = kwargs.get("device") is not None and torch.device(kwargs["device"]).type == "cpu"
    count(operation, name, args, kwargs, to_host)
    result = operation(*_mapped(_as_host, args), **_mapped(_as_host, kwargs))
    written, returned = _written(operation, args, kwargs), operation._schema.returns
    for tensor in written:
        if isinstance(tensor, SimulatedTensor) and tensor.shape != tensor.values.shape:
            tensor.data = SimulatedTensor(tensor.values)
    if written and all(each.alias_info is not None for each in returned):
        return written[0] if len(returned) == 1 else tuple(written[: len(returned)]) or None
    if to_host:
        return result
    of_normal = (
        operation.is_view and not args[0].is_inference()
    )  # whose views are normal tensors in inference mode, too
    with torch.inference_mode(False) if of_normal else contextlib.nullcontext():
        return _mapped(_as_simulated, result)


def refuse_strangers(name, args, kwargs):
    """Raise CUDA's error where tensors of both devices meet. Single numbers may, and so may indices on the CPU."""
    if name in ("copy_", "_to_copy"):
        return
    indexed = name in INDEXING and isinstance(args[0], SimulatedTensor)
    joined = name in ("cat", "stack")
    met = _tensors(args[2:] if indexed else args) + _tensors(kwargs)
    strangers = [x for x in met if not isinstance(x, SimulatedTensor) and (joined or x.ndim > 0)]
    if strangers:
        shapes = ", ".join(str(tuple(x.shape)) for x in strangers)
        raise RuntimeError(
            f"Expected all tensors to be on the same device, but found at least two devices, {DEVICE} and cpu! "
            f"({name} was given CPU tensors of shape {shapes})"
        )


def count(operation, name, args, kwargs, to_host):
    """Count an operation as one launch, unless it is free, and the copies and the wait that it causes."""
    counts = current_counts()
    if not (operation.is_view or torch.Tag.inplace_view in operation.tags or name in FREE):
        counts.launch(name)
    if name == "copy_" and not isinstance(args[0], SimulatedTensor):
        counts.download(args[1], non_blocking=args[2] if len(args) > 2 else False)
    elif name == "copy_" and not isinstance(args[1], SimulatedTensor):
        counts.upload(args[1])
    elif name == "_to_copy" and to_host:
        counts.download(args[0], non_blocking=kwargs.get("non_blocking", False))
    elif name == "_local_scalar_dense":
        counts.download(args[0])
    elif name in INDEXING:
        for index in args[1]:
            if isinstance(index, torch.Tensor) and not isinstance(index, SimulatedTensor):
                counts.upload(index)
    size_unknown = name == "repeat_interleave" and kwargs.get("output_size") is None
    if name in WAITING or size_unknown or _has_a_mask(name, args):
        counts.wait()


def _has_a_mask(name, args):
    """Return whether an operation looks up where a mask is true; a single number from the host is filled in instead."""
    if name not in INDEXING:
        return False
    masks = [x for x in args[1] if isinstance(x, SimulatedTensor) and x.dtype in (torch.bool, torch.uint8)]
    fill = len(args) > 2 and not isinstance(args[2], SimulatedTensor) and args[2].numel() == 1
    return bool(masks) and not fill


def _written(operation, args, kwargs):
    """Return the tensors that an operation changes."""
    found = []
    for at, name in _changed_arguments(operation):
        found += _tensors(args[at] if at < len(args) else kwargs.get(name))
    return found


@functools.cache
def _changed_arguments(operation):
    """Return the position and the name of each argument that an operation changes."""
    arguments = enumerate(operation._schema.arguments)
    return [(at, each.name) for at, each in arguments if each.alias_info is not None and each.alias_info.is_write]


def _as_host(x):
    if isinstance(x, SimulatedTensor):
        return x.values
    return torch.device("cpu") if isinstance(x, torch.device) else x


def _as_simulated(x):
    return SimulatedTensor(x) if isinstance(x, torch.Tensor) else x


def _mapped(function, x):
    """Apply a function to what tuples, lists and dicts hold; torch's pytree takes most of the time of an operation."""
    if isinstance(x, tuple | list):
        return type(x)([_mapped(function, each) for each in x])
    if isinstance(x, dict):
        return {key: _mapped(function, each) for key, each in x.items()}
    return function(x)


def _tensors(x):
    found = []
    _mapped(lambda each: found.append(each) if isinstance(each, torch.Tensor) else None, x)
    return found
