"""The methods after TPT as plain programs in float64: one image at a time, loops and branches. Nothing comes from ``tpt_lib``.

``views`` are unit features ``(N, E)``, row 0 the plain image; ``text`` unit features ``(K, E)``; ``scale`` the logit scale.
"""

import math

import torch
from oracles.tpt import BETA1, BETA2, EPS, plain_entropy, plain_loss


def probabilities(logits):
    return logits.double().softmax(dim=-1)


def by_entropy(logits):
    """Return the indices of the views, the most confident first."""
    return plain_entropy(probabilities(logits).clamp(min=1e-300)).sort(stable=True).indices


def confident(logits, fraction):
    return by_entropy(logits)[: max(1, int(fraction * len(logits)))]


def plain_zero(views, text, scale, fraction=0.3, temperature=0.0):
    """Return the votes ``(K,)`` of the confident views and the winner."""
    cosines = views.double() @ text.double().T
    order = by_entropy(scale * cosines).tolist()
    kept = max(1, int(fraction * len(order)))
    votes = torch.zeros(len(text)).double()
    for view in order[:kept]:
        if temperature:
            votes += (cosines[view] / temperature).softmax(dim=0)
        else:
            votes[int(cosines[view].argmax())] += 1
    tied = [k for k in range(len(text)) if votes[k] == votes.max()]
    if len(tied) > 1:
        for view in order[kept:]:
            if int(cosines[view].argmax()) in tied:
                votes[int(cosines[view].argmax())] += 1
                return votes, int(votes.argmax())
        mean = probabilities(scale * cosines[order[:kept]]).mean(dim=0)
        return votes, max(tied, key=lambda k: mean[k])
    return votes, tied[0]


def plain_vte(views, text, scale, fraction=0.1):
    """Return the logits of the mean feature of the confident views."""
    views, text = views.double(), text.double()
    return scale * text @ views[confident(scale * views @ text.T, fraction)].mean(dim=0)


def plain_mta(views, text, scale, lambda_q=4.0, lambda_y=0.2):
    """Return the logits of the mode that mean shift finds; with one view or none that differs, those of the plain image."""
    views, text = views.double(), text.double()
    number = len(views)
    if all(torch.equal(view, views[0]) for view in views):
        return scale * text @ views[0]
    bandwidth = []
    for i in range(number):
        others = sorted(float((views[i] - views[j]).square().sum()) for j in range(number) if j != i)
        nearest = others[: max(1, int(0.3 * (number - 1)))]
        bandwidth.append(sum(nearest) / len(nearest) / 2)
    bandwidth = torch.tensor(bandwidth).double()
    p = probabilities(scale * views @ text.T)
    affinity = p @ p.T

    def density(mode):
        return (-(views - mode).square().sum(dim=1) / (2 * bandwidth)).exp()

    inlierness, mode = torch.full((number,), 1 / number).double(), views[0]
    for _ in range(5):
        near = density(mode)
        for _ in range(5):
            before = inlierness
            inlierness = ((near + lambda_q * affinity @ inlierness) / lambda_y).softmax(dim=0)
            if (inlierness - before).norm() < 1e-6:
                break
        for _ in range(5):
            before, weights = mode, density(mode) * inlierness
            mode = (weights[:, None] * views).sum(dim=0) / weights.sum()
            mode = mode / mode.norm()
            if (mode - before).norm() < 1e-6:
                break
    return scale * text @ mode


def plain_tps(views, text, scale, steps=1, lr=5e-3, fraction=0.1, variant="shift", shared=False, reselect=False):
    """Return the logits of the plain image with text features that AdamW, written out, shifted or scaled."""
    views, text = views.double(), text.double()
    size = (1, text.shape[1]) if shared else tuple(text.shape)
    names = ["shift", "scale"] if variant == "both" else [variant]
    values = {n: (torch.zeros if n == "shift" else torch.ones)(size).double() for n in names}
    moments = {n: (torch.zeros(size).double(), torch.zeros(size).double()) for n in names}

    def moved(given):
        out = text * given.get("scale", 1) + given.get("shift", 0)
        return out / out.norm(dim=1, keepdim=True)

    selected, gradients = confident(scale * views @ text.T, fraction), []
    for step in range(1, steps + 1):
        leaves = {n: value.detach().requires_grad_() for n, value in values.items()}
        features = moved(leaves)
        if reselect:
            selected = confident(scale * views @ features.detach().T, fraction)
        found = torch.autograd.grad(plain_loss(scale * views[selected] @ features.T), [*leaves.values()])
        gradients.append(found)
        for name, gradient in zip(names, found, strict=True):
            values[name], moments[name] = adamw(values[name], gradient, moments[name], step, lr, 0.01)
    return scale * moved(values) @ views[0], gradients


def adamw(value, gradient, moments, step, lr, decay):
    first = BETA1 * moments[0] + (1 - BETA1) * gradient
    second = BETA2 * moments[1] + (1 - BETA2) * gradient**2
    update = (first / (1 - BETA1**step)) / ((second / (1 - BETA2**step)).sqrt() + EPS)
    return (1 - lr * decay) * value - lr * update, (first, second)


def plain_tuning(text_of, context, loss_of, steps, lr, decay):
    """Tune a context by AdamW on ``loss_of(text features)``; return the text features after it, and each step's gradient."""
    context = context.double()
    moments, gradients = (torch.zeros_like(context), torch.zeros_like(context)), []
    for step in range(1, steps + 1):
        context = context.detach().requires_grad_()
        (gradient,) = torch.autograd.grad(loss_of(text_of(context)), context)
        gradients.append(gradient)
        context, moments = adamw(context.detach(), gradient, moments, step, lr, decay)
    return text_of(context).detach(), gradients


def plain_dispersion(text):
    """Return the mean distance of the text features from their mean."""
    center = sum(text) / len(text)
    return sum((one - center).square().sum().sqrt() for one in text) / len(text)


def householder_penalty(text):
    """Return O-TPT's penalty as its code does: reflect each row of the Gram matrix onto its axis, subtract the identity."""
    gram = text @ text.T
    rows = []
    for k, row in enumerate(gram):
        axis = torch.zeros_like(row)
        axis[k] = 1
        normal = row - row.norm() * axis
        length = normal.square().sum()
        reflected = row if length == 0 else row - 2 * normal * (normal @ row) / length
        rows.append((reflected - axis).norm())
    return torch.stack(rows).mean()


def plain_reliability(views, neighbors=20, temperature=0.01):
    """Return the weights of the views: by the mean of their largest cosines to other views."""
    views = views.double()
    scores = []
    for i in range(len(views)):
        cosines = sorted((float(views[i] @ views[j]) for j in range(len(views)) if j != i), reverse=True)[:neighbors]
        scores.append(sum(cosines) / len(cosines) if cosines else 0.0)
    exponentials = [math.exp((score - max(scores)) / temperature) for score in scores]
    return torch.tensor(exponentials).double() / sum(exponentials)


def plain_policy_loss(logits, rewards, sampled=3):
    """Return RLCF's loss of the kept views' logits and rewards ``(M, K)``."""
    total, number = 0.0, 0
    for row, reward in zip(logits, rewards, strict=True):
        classes = sorted(range(len(row)), key=lambda k: -float(row.detach()[k]))[:sampled]
        scores = [2.5 * max(0.0, float(reward[k])) for k in classes]
        for k, score in zip(classes, scores, strict=True):
            total = total - (score - sum(scores) / len(scores)) * row.log_softmax(dim=0)[k]
            number += 1
    return total / number


def plain_weighted_entropy(logits, margin=0.4):
    """Return TTL's loss: the mean over views of their entropies, weighted by ``exp(margin - entropy)`` as a constant."""
    found = [plain_entropy(row.softmax(dim=0)) for row in logits]
    return sum(math.exp(margin - float(h.detach())) * h for h in found) / len(found)


def plain_filter(logits, kept=0.8, fraction=0.3):
    """Return DiffTPT's selection: views whose logits are nearest to those of the plain image, then the confident ones."""
    logits = logits.double()
    cosines = [float(logits[i] @ logits[0] / logits[i].norm() / logits[0].norm()) for i in range(1, len(logits))]
    number = int(kept * (len(logits) - 1))
    near = [0] + [1 + i for i in sorted(range(len(cosines)), key=lambda i: -cosines[i])[:number]]
    return {near[i] for i in confident(logits[near], fraction).tolist()}
