"""TPT as a plain program: text features, entropy, selection, tuning, and Bongard tuning, in float64 at full length.

Nothing here comes from ``tpt_lib``. A learned token is put in where a ``Put`` says, by row and column of the token ids,
as the output of the model's own token embedding.
"""

import copy
import inspect
from dataclasses import dataclass

import torch
from torch import nn

LR, BETA1, BETA2, EPS, DECAY = 5e-3, 0.9, 0.999, 1e-8, 0.01


@dataclass
class Put:
    """Values ``(n, D)`` for every row, or ``(K, n, D)``, and the columns ``(K, n)`` of the ids they stand at."""

    columns: torch.Tensor
    values: torch.Tensor


def float64(module):
    """Copy a module in double precision and eval mode."""
    module = copy.deepcopy(module).double().eval()
    for part in module.modules():
        if isinstance(part, nn.LayerNorm):
            part.__class__ = nn.LayerNorm  # OpenAI's own computes in float32
    return module.requires_grad_(False)


def token_embedding(module):
    """Return the module that embeds tokens."""
    if hasattr(module, "text_model"):
        return module.text_model.get_input_embeddings()
    return getattr(module, "text", module).token_embedding


def text_forward(module, ids):
    """Return the model's own text features of token ids, not normalized."""
    if hasattr(module, "get_text_features"):
        masked = type(module).__name__.startswith(("ChineseCLIP", "AltCLIP"))
        mask = {"attention_mask": (ids != module.config.text_config.pad_token_id).long()} if masked else {}
        return module.get_text_features(input_ids=ids, **mask).pooler_output
    takes_normalize = "normalize" in inspect.signature(module.encode_text).parameters
    return module.encode_text(ids, normalize=False) if takes_normalize else module.encode_text(ids)


def plain_text(module, ids, *puts):
    """Return normalized text features ``(K, E)`` of a ``float64`` copy."""

    def put_in(_module, _inputs, embedded):
        embedded = embedded.clone()
        for put in puts:
            for row, columns in enumerate(put.columns):
                embedded[row, columns] = put.values[row] if put.values.ndim == 3 else put.values
        return embedded

    handle = token_embedding(module).register_forward_hook(put_in)
    try:
        features = text_forward(module, ids)
    finally:
        handle.remove()
    return features / features.norm(dim=-1, keepdim=True)


def plain_entropy(probs):
    """Return the entropy of each row of probabilities."""
    return -(probs * probs.log()).sum(dim=-1)


def plain_selection(logits):
    """Return the indices of the most confident tenth of the views, at least one."""
    order = plain_entropy(logits.softmax(dim=-1)).sort(stable=True).indices
    return order[: max(1, int(0.1 * len(logits)))]


def plain_loss(logits):
    """Return the entropy of the mean prediction."""
    return plain_entropy(logits.softmax(dim=-1).mean(dim=0))


@dataclass
class PlainTuning:
    """What each step of plain TPT saw."""

    features: torch.Tensor  # at the initial context
    selected: torch.Tensor
    gradients: list  # at each step
    contexts: list  # after each step
    logits: list  # of row 0, after each step


def plain_tpt(module, ids, columns, context, image_features, scale, bias, steps):
    """Tune a context with AdamW, written out, on the loss of the views that were confident at first."""
    images, context = image_features.double(), context.double()
    first, second = torch.zeros_like(context), torch.zeros_like(context)

    def logits_of(features, images):
        return scale * images @ features.T + bias

    result = None
    for step in range(1, steps + 1):
        context = context.detach().requires_grad_()
        features = plain_text(module, ids, Put(columns, context))
        if result is None:
            selected = plain_selection(logits_of(features.detach(), images))
            result = PlainTuning(features.detach(), selected, [], [], [])
        loss = plain_loss(logits_of(features, images[result.selected]))
        (gradient,) = torch.autograd.grad(loss, context)
        with torch.no_grad():
            first = BETA1 * first + (1 - BETA1) * gradient
            second = BETA2 * second + (1 - BETA2) * gradient**2
            update = (first / (1 - BETA1**step)) / ((second / (1 - BETA2**step)).sqrt() + EPS)
            context = (1 - LR * DECAY) * context - LR * update
            result.gradients.append(gradient)
            result.contexts.append(context)
            result.logits.append(logits_of(plain_text(module, ids, Put(columns, context)), images[:1])[0])
    return result


def plain_bongard(module, ids, columns, tokens, supports, labels, scale, bias, steps):
    """Tune context and class tokens with AdamW on the cross-entropy of the supports; return what each step saw."""
    supports = supports.double()
    tokens = [token.double() for token in tokens]
    first, second = ([torch.zeros_like(token) for token in tokens] for _ in range(2))
    gradients, losses = [], []
    for step in range(1, steps + 1):
        tokens = [token.detach().requires_grad_() for token in tokens]
        features = plain_text(module, ids, *(Put(c, t) for c, t in zip(columns, tokens, strict=True)))
        probs = (scale * supports @ features.T + bias).softmax(dim=-1)
        loss = -probs[range(len(labels)), labels].log().mean()
        gradients.append(torch.autograd.grad(loss, tokens))
        losses.append(loss.detach())
        with torch.no_grad():
            for i, gradient in enumerate(gradients[-1]):
                first[i] = BETA1 * first[i] + (1 - BETA1) * gradient
                second[i] = BETA2 * second[i] + (1 - BETA2) * gradient**2
                update = (first[i] / (1 - BETA1**step)) / ((second[i] / (1 - BETA2**step)).sqrt() + EPS)
                tokens[i] = (1 - LR * DECAY) * tokens[i] - LR * update
    with torch.no_grad():
        features = plain_text(module, ids, *(Put(c, t) for c, t in zip(columns, tokens, strict=True)))
    return tokens, features, gradients, losses
