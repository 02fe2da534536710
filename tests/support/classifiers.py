"""Classifiers of torchvision's architectures with random weights, views of noise, and what MEMO's tests measure."""

import functools
import weakref

import torch
from support.zoo import liven
from torch import nn

ARCHITECTURES = [
    "resnet18",
    "mobilenet_v3_small",
    "regnet_y_400mf",
    "shufflenet_v2_x0_5",
    "squeezenet1_1",
    "vit_b_16",
    "swin_t",
]


@functools.cache
def classifier(name):
    """With random weights, norms and running statistics, so that each of them counts."""
    import torchvision

    torch.manual_seed(0)
    if name == "vit_b_16":
        module = torchvision.models.VisionTransformer(32, 16, 2, 2, 32, 64, num_classes=7)
        nn.init.normal_(module.heads.head.weight)
    elif name == "swin_t":
        module = torchvision.models.SwinTransformer([4, 4], 16, [2, 2], [2, 2], [4, 4], num_classes=7)
    else:
        module = torchvision.models.get_model(name, num_classes=7)
    for part in module.modules():
        if isinstance(part, nn.modules.batchnorm._BatchNorm):
            part.running_mean.normal_(0, 0.3)
            part.running_var.uniform_(0.5, 2)
    return liven(module).eval()


def views_of(number=10, size=40, seed=0):
    return torch.randn(number, 3, size, size, generator=torch.Generator().manual_seed(seed))


def size_of(name):
    return 32 if name in ("vit_b_16", "swin_t") else 40


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(12, 12), nn.Linear(12, 12)
        self.second.weight = self.first.weight

    def forward(self, x):
        return self.second(self.first(x.flatten(1)).relu())


def close(found, want, still):
    """Logits are the oracle's to a ten-thousandth of the way from where they are without the step."""
    moved = (want - still.double()).abs().max()
    gap = (found.double() - want).abs().max()
    assert moved > 1e-4, "the oracle must move for the comparison to say something"
    assert gap <= 1e-4 * moved + 1e-6, (gap, moved)


def graph_size(call):
    """The most numbers that autograd's graphs held at once."""

    class Held:
        def __init__(self, tensor):
            self.tensor = tensor

    held, sizes = weakref.WeakSet(), []

    def pack(tensor):
        box = Held(tensor)
        held.add(box)
        sizes.append(sum(one.tensor.numel() for one in held))
        return box

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda box: box.tensor):
        call()
    return max(sizes)
