"""CoOp and CoCoOp as a plain program: the loss of a batch of labeled features and its gradients, in float64."""

import torch
from oracles.tpt import Put, float64, plain_text


def plain_gradients(model, prompts, context, net, features, labels):
    """Return the mean cross-entropy and its gradients in context and network; with a network each image has its context.

    Args:
        model: gives the torch module and the logit scale.
        prompts: gives the token ids; the context starts right after the start token.
        context: ``(L, D)`` or ``(K, L, D)``.
        net: the four tensors of CoCoOp's network, or an empty list for CoOp.
        features: normalized image features ``(B, E)``.
        labels: the class of each ``(B,)``.
    """
    module = float64(model.module)
    free = [t.double().detach().requires_grad_() for t in (context, *net)]
    columns = torch.arange(1, 1 + context.shape[-2]).expand(len(prompts.names), -1)
    losses = []
    for feature, label in zip(features.double(), labels, strict=True):
        own = free[0]
        if net:
            own = own + free[3] @ torch.relu(free[1] @ feature + free[2]) + free[4]
        text = plain_text(module, prompts.ids, Put(columns, own))
        losses.append(-(float(model.logit_scale) * text @ feature).log_softmax(dim=0)[label])
    loss = torch.stack(losses).mean()
    return loss.detach(), torch.autograd.grad(loss, free)
