"""MEMO as a plain program: all views at once through a deep copy in float64, and steps of SGD written out."""

import copy

import torch
import torch.nn.functional as F
from oracles.tpt import plain_entropy, plain_loss
from torch import nn


class PlainNorm(nn.Module):
    """MEMO's batch norm: its statistics are those of the batch, weighted 1 to ``prior`` with the running ones."""

    def __init__(self, norm, prior):
        super().__init__()
        self.norm, self.prior = norm, prior

    def forward(self, x):
        mean, var = torch.zeros_like(self.norm.running_mean), torch.ones_like(self.norm.running_var)
        F.batch_norm(x, mean, var, None, None, True, 1.0, self.norm.eps)
        weight = self.prior / (self.prior + 1)
        mean = weight * self.norm.running_mean + (1 - weight) * mean
        var = weight * self.norm.running_var + (1 - weight) * var
        return F.batch_norm(x, mean, var, self.norm.weight, self.norm.bias, False, 0.0, self.norm.eps)


def with_plain_norms(module, prior):
    """Replace every batch norm of a module."""
    for name, child in list(module.named_children()):
        if isinstance(child, nn.BatchNorm2d):
            setattr(module, name, PlainNorm(child, prior))
        else:
            with_plain_norms(child, prior)
    return module


def plain_memo(module, views, *, prior=16, fraction=1.0, steps=1, lr=2.5e-4):
    """Return the logits of view 0 after tuning, the loss before each step, and the selected views."""
    module = copy.deepcopy(module).double()
    module = module if prior is None else with_plain_norms(module, prior)
    views, losses, selected = views.double(), [], None
    for _ in range(steps):
        module.zero_grad()
        logits = module(views)
        if selected is None:
            order = plain_entropy(logits.detach().softmax(dim=-1)).sort(stable=True).indices
            selected = order[: max(1, int(fraction * len(views)))]
        loss = plain_loss(logits[selected])
        loss.backward()
        losses.append(loss.item())
        with torch.no_grad():
            for weight in module.parameters():
                if weight.grad is not None:
                    weight -= lr * weight.grad
    with torch.no_grad():
        return module(views[:1])[0], losses, selected
