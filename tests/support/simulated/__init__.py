"""A simulated accelerator: what a GPU pays for, counted on a CPU.

Tensors on ``sim:0`` hold real values in host memory, so results can be compared with the CPU's. They refuse to meet CPU tensors
where CUDA's do. While ``counting()`` is active, the device is available to torch, and every operation on it is counted::

    model = to_simulated(module)
    with counting() as counts:
        model(torch.randn(2, 3).to(DEVICE))
    print(counts.launches, counts.synchronizations, counts.waits, counts.bytes_in, counts.bytes_out)

Convention: an operation of ATen is one launch, and so is a copy. Views and allocations are free. A synchronization is a wait
for the device: a copy to the host that is not ``non_blocking``, or an operation whose result has a size that depends on values.
Copies from the host are counted apart, as ``uploads``; CUDA waits for those that are not ``non_blocking``, too. Attention
decomposes into several launches where CUDA has one fused kernel.

torch has one slot for a backend of this kind, for the whole process. It is filled on first use, and ``torch.accelerator`` does
not find the device outside ``counting()``. Needs a torch with Python backends (2.9 or later): see ``AVAILABLE``.
"""

from support.simulated.backend import AVAILABLE, WHY_NOT, counting, register, to_simulated
from support.simulated.counts import Counts
from support.simulated.tensor import DEVICE, SimulatedTensor, on_host

__all__ = [
    "AVAILABLE",
    "DEVICE",
    "WHY_NOT",
    "Counts",
    "SimulatedTensor",
    "counting",
    "on_host",
    "register",
    "to_simulated",
]
