import pytest
import torch
from support.pictures import PHOTOS, generator, load
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from tpt_lib.views import apply_crops, read_image, sample_crops


@pytest.fixture(scope="session")
def cut():
    """Real crops at 224 of all photographs, ``(48, 3, 224, 224)``."""
    pixels = [read_image(load(name)) for name in PHOTOS]
    return torch.cat([apply_crops(p, sample_crops(12, p.shape[1:], generator=generator()), (224, 224)) for p in pixels])


@pytest.fixture(scope="session")
def images():
    """Small photographs of different widths."""
    return [load(name).resize((90 + 7 * i, 80)) for i, name in enumerate(PHOTOS)]


class Operations(TorchDispatchMode):
    """Count the operations on tensors of a device, without those that only view, and the bytes copied to it."""

    def __init__(self, device):
        super().__init__()
        self.device, self.names, self.bytes = device, [], 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **kwargs or {})
        given = [x for x in tree_leaves((args, kwargs)) if isinstance(x, torch.Tensor)]
        made = [x for x in tree_leaves(out) if isinstance(x, torch.Tensor)]
        views = any(r.alias_info is not None and not r.alias_info.is_write for r in func._schema.returns)
        if not views and any(x.device.type == self.device for x in given + made):
            self.names.append(func.overloadpacket.__name__)
            if any(x.device.type == self.device for x in made):
                self.bytes += sum(x.nbytes for x in given if x.device.type == "cpu" != self.device)
        return out


@pytest.fixture
def operations_on():
    """Counts operations on a device: ``with operations_on("meta") as counted``. What ``meta`` computes cannot be waited for."""
    return Operations
