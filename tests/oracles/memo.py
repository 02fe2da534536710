"""MEMO by the book: a deep copy in float64, all views at once, ``backward`` and a step by hand."""

import copy

import torch
import torch.nn.functional as F
from oracles.tpt import float64, plain_entropy, plain_loss, token_embedding
from torch import nn


class PlainNorm(nn.Module):
    """MEMO's batch norm: its statistics are those of the batch, weighted 1 to ``prior`` with the running ones."""

    def __init__(self, norm, prior):
        super().__init__()
        self.norm, self.prior = norm, prior

    def forward(self, x):
        mean, var = torch.zeros_like(self.norm.running_mean), torch.ones_like(self.norm.running_var)
        one_value = x.numel() == x.shape[1]  # which has no variance
        if not one_value:
            F.batch_norm(x, mean, var, None, None, True, 1.0, self.norm.eps)
        weight = 1.0 if one_value else self.prior / (self.prior + 1)
        mean = weight * self.norm.running_mean + (1 - weight) * mean
        var = weight * self.norm.running_var + (1 - weight) * var
        return F.batch_norm(x, mean, var, self.norm.weight, self.norm.bias, False, 0.0, self.norm.eps)


def with_plain_norms(module, prior):
    for name, child in list(module.named_children()):
        if isinstance(child, nn.BatchNorm2d):
            setattr(module, name, PlainNorm(child, prior))
        else:
            with_plain_norms(child, prior)
    return module


def plain_memo(module, views, *, prior=16, fraction=1.0, steps=1, lr=2.5e-4):
    """The logits of the plain image, the losses, the views they were computed on; without steps, norms still see the image."""
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


def plain_group(model, prompts, views, group, lr, steps, fraction=1.0):
    """The same with a deep copy, its own forward on full-length prompts, and ``backward``."""
    module = float64(model.module).requires_grad_()
    views = views.double()

    def image():
        out = model.image_features(module, views)
        return out / out.norm(dim=-1, keepdim=True)

    held, columns = None, 0 if "siglip" in type(module).__name__.lower() or len(prompts.ids[0]) == 24 else 1
    if prompts.meta_net is not None:
        net, plain = prompts.meta_net, image()[0].detach().float()
        held = prompts.context + net(plain)
    elif not torch.equal(
        model.embed_tokens(prompts.ids[:1])[0, columns : columns + len(prompts.context)], prompts.context
    ):
        held = prompts.context

    def put_in(_module, _inputs, embedded):
        if held is None:
            return embedded
        return torch.cat([embedded[:, :1], held.double().expand(len(embedded), -1, -1), embedded[:, 5:]], dim=1)

    token_embedding(module).register_forward_hook(put_in)

    def logits():
        text = model.text_features(module, prompts.ids)
        text = text / text.norm(dim=-1, keepdim=True)
        bias = getattr(module, "logit_bias", None)
        return module.logit_scale.exp() * image() @ text.T + (0 if bias is None else bias)

    def mine(name):
        visual = name.startswith(("visual", "vision"))
        apart = name in ("logit_scale", "logit_bias")
        return group == "all" or (not apart and visual == (group == "image"))

    selected = None
    for _ in range(steps):
        module.zero_grad()
        found = logits()
        if selected is None:
            selected = plain_entropy(found.detach().softmax(dim=-1)).sort(stable=True).indices
            selected = selected[: max(1, int(fraction * len(views)))]
        plain_loss(found[selected]).backward()
        with torch.no_grad():
            for name, weight in module.named_parameters():
                if mine(name) and weight.grad is not None:
                    weight -= lr * weight.grad
    with torch.no_grad():
        return logits()[0]


def plain_tent(module, forward, norms, batches, *, online=True, steps=1, lr=1e-3):
    """TENT by the book: the logits ``(B, K)`` of each batch. ``forward(module, images)`` gives logits, ``norms(module)`` the
    norms that are tuned; batch norms are in train mode, without running statistics."""
    original, answers, optimizer = float64(module), [], None
    for images in batches:
        if optimizer is None or not online:
            tuned = copy.deepcopy(original)
            for norm in norms(tuned):
                norm.requires_grad_()
                if isinstance(norm, nn.BatchNorm2d):
                    norm.train()
                    norm.track_running_stats, norm.running_mean, norm.running_var = False, None, None
            weights = [weight for norm in norms(tuned) for weight in norm.parameters()]
            optimizer = torch.optim.Adam(weights, lr=lr)
        for _ in range(steps):
            logits = forward(tuned, images.double())
            optimizer.zero_grad()
            plain_entropy(logits.softmax(dim=-1)).mean().backward()
            optimizer.step()
        with torch.no_grad():
            answers.append(logits.detach() if online else forward(tuned, images.double()))
    return answers
