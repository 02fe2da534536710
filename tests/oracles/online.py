"""The methods that learn from a stream as plain programs in float64: lists, loops and branches. Nothing comes from ``tpt_lib``.

``stream`` is a list of the views' unit features ``(N, E)`` of one image each, row 0 the plain image; ``text`` unit features
``(K, E)``; ``scale`` the logit scale. Every program returns one answer ``(K,)`` per image.
"""

import math

import torch
from oracles.followers import by_entropy, confident, probabilities
from oracles.tpt import plain_entropy


def nats(p):
    return float(plain_entropy(p.clamp(min=1e-300)))


def summary(views, text, scale, recipe):
    """Return (x, logits, entropy, probabilities, class) of one image."""
    logits = scale * views @ text.T
    kept = [0] if recipe == "plain" else confident(logits, 0.1).tolist()
    x, mean = views[kept].mean(dim=0), logits[kept].mean(dim=0)
    p = probabilities(logits[kept]).mean(dim=0)
    return x, mean, nats(p), p, int(mean.argmax())


def keep_lowest(items, new, capacity):
    """Return the items of lowest entropy, which is the first entry; of equal ones those that came first."""
    return sorted([*items, new], key=lambda item: item[0])[:capacity]


def affinity(x, key, beta):
    return math.exp(-beta * (1 - float(x @ key)))


def plain_tda(
    stream,
    text,
    scale,
    recipe="plain",
    alpha=2.0,
    beta=5.0,
    boost=None,
    boosted=6,
    negative="entropy",
    capacities=(3, 2),
):
    """Return the logits of TDA; of BoostAdapter if ``boost`` is its additional capacity."""
    text, classes, answers = text.double(), len(text), []
    positive, doubtful = [[] for _ in text], [[] for _ in text]
    for views in (views.double() for views in stream):
        x, logits, h, p, c = summary(views, text, scale, recipe)
        positive[c] = keep_lowest(positive[c], (h, x), capacities[0])
        if 0.2 * math.log2(classes) < h < 0.5 * math.log2(classes):
            new = (h, x, ((p > 0.03) & (p < 1)).double())
            if negative == "entropy":
                doubtful[c] = keep_lowest(doubtful[c], new, capacities[1])
            else:
                doubtful[c] = [*doubtful[c], new][-capacities[1] :]
        seen = [list(items) for items in positive]
        if boost is not None and len(views) > 1:
            each = scale * views @ text.T
            for n in by_entropy(each)[:boosted].tolist():
                own = int(each[n].argmax())
                seen[own] = keep_lowest(seen[own], (nats(probabilities(each[n])), views[n]), capacities[0] + boost)
        answer = logits.clone()
        for k in range(classes):
            for _, key in seen[k]:
                answer[k] += alpha * affinity(x, key, beta)
            for _, key, mask in doubtful[k]:
                answer -= 0.117 * affinity(x, key, 1.0) * mask
        answers.append(answer)
    return answers


def plain_dmn(stream, text, scale, capacity=50, weight=1.0, beta=5.5, votes=3):
    """Return the scores of DMN-ZS, which sum to 1 + weight."""
    text, answers = text.double(), []
    memory = [[] for _ in text]
    for views in (views.double() for views in stream):
        p = probabilities(scale * views @ text.T)
        doubt = [-float((one * (one + 1e-6).log()).sum()) for one in p]
        sure = sorted(range(len(views)), key=lambda n: doubt[n])[:votes]
        q = p[sure].mean(dim=0)
        c, h, plain = int(q.argmax()), -float((q * (q + 1e-8).log()).sum()), views[0]
        if len(memory[c]) < capacity:
            memory[c].append((h, plain))
        else:
            largest = max(range(capacity), key=lambda i: memory[c][i][0])
            if h < memory[c][largest][0]:
                memory[c][largest] = (h, plain)
        read = []
        for k, own in enumerate(text):
            total = torch.zeros_like(plain)
            for item in [own, *(key for _, key in memory[k])]:
                total += affinity(plain, item, beta) * item
            read.append(scale * float(plain @ total / total.norm()))
        answers.append(p[0] + weight * torch.tensor(read).double().softmax(dim=0))
    return answers


def plain_dpe(
    stream,
    text,
    scale,
    recipe="views",
    alpha=6.0,
    beta=5.0,
    lr=6e-4,
    align=0.5,
    capacity=3,
    threshold=0.1,
    read="plain",
):
    """Return the logits of DPE."""
    mean, count, answers = text.double(), 0, []
    cached = [[] for _ in text]

    def fused(x, w, prototypes, present):
        logits = scale * w @ x
        extra = torch.zeros_like(logits)
        for row, k in enumerate(present):
            extra[k] = alpha * (-beta * (1 - prototypes[row] @ x)).exp()
        return logits + extra

    for views in (views.double() for views in stream):
        r = torch.zeros_like(mean).requires_grad_()
        start = mean / mean.norm(dim=1, keepdim=True)
        x, _, h, _, c = summary(views, start, scale, recipe)
        cached[c] = keep_lowest(cached[c], (h, x), capacity)
        present = [k for k in range(len(text)) if cached[k]]
        centers = torch.stack([torch.stack([key for _, key in cached[k]]).mean(dim=0) for k in present])
        q = torch.zeros_like(centers).requires_grad_()

        def unit(start, shift):
            return (start + shift) / (start + shift).norm(dim=1, keepdim=True)

        w, prototypes = unit(mean, r), unit(centers, q)
        p = fused(x, w, prototypes, present).log_softmax(dim=0)
        contrast = (prototypes @ w[present].T / 0.01).log_softmax(dim=1).diagonal()
        loss = -(p.exp() * p).sum() - align * contrast.mean()
        gradients = torch.autograd.grad(loss, [r, q])
        moved_r, moved_q = (-lr * g / (g.abs() + 1e-3) for g in gradients)
        w, prototypes = unit(mean, moved_r), unit(centers, moved_q)
        answer = fused(summary(views, w, scale, read)[0], w, prototypes, present)
        if nats(probabilities(answer)) < threshold * math.log2(len(text)):
            count += 1
            mean = (count * mean + w) / (count + 1)
        answers.append(answer)
    return answers


def plain_onzeta(stream, text, expected, alpha=1.0, beta=0.8):
    """Return the probabilities of OnZeta."""
    text, answers = text.double(), []
    dual, weights = torch.zeros(len(text)).double(), text.clone()
    for i, views in enumerate(stream, start=1):
        x = views[0].double()
        q = (text @ x / 0.01).softmax(dim=0) * dual.exp()
        q = q / q.sum()
        dual = (dual - 20 / math.sqrt(i) * (q - alpha / len(text))).clamp(min=0)
        g = (weights @ x / 0.04).softmax(dim=0)
        b = beta * math.sqrt(min(i, expected) / expected)
        answers.append(b * g + (1 - b) * q)
        weights = weights - 0.5 / (0.04 * math.sqrt(i)) * (g - q)[:, None] * x
        weights = weights / weights.norm(dim=1, keepdim=True)
    return answers


def plain_ecalp(stream, text, capacity=1000, images=8, texts=3, power=10, rounds=3, decay=0.2):
    """Return the scores of ECALP, which sum to 1. The graph is a matrix of all nodes, built anew for each image."""
    text, answers = text.double(), []
    classes, u, past = len(text), text.double().var(dim=0, correction=0), []
    for views in stream:
        past = [*past, (views[0].double(), torch.zeros(classes).double())][-capacity:]
        nodes = [feature for feature, _ in past] + [views[0].double()]
        n = len(nodes)

        def similar(a, b, nodes=nodes):
            early, late = nodes[min(a, b)], nodes[max(a, b)]
            weighted = u * early
            return float(weighted @ late / weighted.norm().clamp(min=1e-300))

        w = torch.zeros(classes + n, classes + n).double()
        for a in range(n):
            to_images = [similar(a, b) for b in range(n)]
            for b in sorted(range(n), key=lambda b, s=to_images: -s[b])[:images]:
                w[classes + a, classes + b] = to_images[b] ** power
            to_texts = [float(nodes[a] @ t) for t in text]
            for k in sorted(range(classes), key=lambda k, s=to_texts: -s[k])[:texts]:
                w[classes + a, k] = to_texts[k] ** power
        w = w + w.T
        inverse = 1 / (w.sum(dim=1).sqrt() + 1e-6)
        w = inverse[:, None] * w * inverse
        y = torch.cat([torch.eye(classes).double(), *(row[None] for _, row in past), torch.zeros(1, classes).double()])
        for _ in range(rounds):
            y = torch.cat([torch.eye(classes).double(), (w @ y)[classes:]])
        answers.append(y[-1] / y[-1].sum())
        kept = [torch.zeros(classes).double() for _ in past]
        for row, found in zip(kept, y[classes:-1], strict=True):
            row[found.argmax()] = decay * found.max()
        past = [(feature, row) for (feature, _), row in zip(past, kept, strict=True)]
    return answers


def plain_dynaprompt(stream, text_of, context, scale, rule="intended", size=12, lr=5e-3, fraction=0.1):
    """Return the logits of DynaPrompt, and which prompts each image chose. ``text_of(context)`` gives text features."""
    context, answers, choices = context.double(), [], []
    buffer, uses, order = [torch.zeros_like(context) for _ in range(size)], [0] * size, list(range(size))
    for views in (views.double() for views in stream):
        oldest = order[0]
        if min(uses) > 0:
            buffer[oldest], uses[oldest] = torch.zeros_like(context), 0
        with torch.no_grad():
            logits = [scale * views @ text_of(context + residual).T for residual in buffer]
        doubts = [[nats(probabilities(row)) for row in each] for each in logits]
        e = [sum(row) / len(row) for row in doubts]
        top = [each.max(dim=1).values for each in logits]
        d = [float(row[0] - (row[1:].mean() if len(row) > 1 else 0)) for row in top]
        if rule == "intended":
            chosen = [j for j in range(size) if j == oldest or (e[j] < e[oldest] and d[j] > d[oldest])]
        else:
            by_e, by_d = (sorted(range(size), key=lambda j, x=x: (-x[j], j)) for x in (e, d))
            r = by_e.index(oldest)
            numbers = set(by_e[min(r + 1, size - 1) :]) & set(by_d[:r])
            chosen = sorted({by_e[j] for j in numbers} | {oldest})
        mean = [sum(doubts[j][n] for j in chosen) / len(chosen) for n in range(len(views))]
        kept = sorted(range(len(views)), key=lambda n, mean=mean: mean[n])[: max(1, int(fraction * len(views)))]
        leaves = [buffer[j].clone().requires_grad_() for j in chosen]
        losses = [
            plain_entropy(probabilities(scale * views[kept] @ text_of(context + x).T).mean(dim=0)) for x in leaves
        ]
        gradients = torch.autograd.grad(sum(losses) / len(losses), leaves)
        buffer = [(1 - lr * 0.01) * residual for residual in buffer]
        for j, g in zip(chosen, gradients, strict=True):
            buffer[j] = buffer[j] - lr * g / (g.abs() + 1e-8)
        order = [j for j in order if j not in chosen] + [j for j in order if j in chosen]
        uses = [count + (j in chosen) for j, count in enumerate(uses)]
        with torch.no_grad():
            answers.append(sum(scale * text_of(context + buffer[j]) @ views[0] for j in chosen) / len(chosen))
        choices.append(chosen)
    return answers, choices
