"""DMN-ZS (Zhang et al., CVPR 2024): a dynamic memory per class, read by similarity."""

from __future__ import annotations

from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

from tpt_lib.logits import unchecked_logits
from tpt_lib.methods.base import OnlineMethod, method
from tpt_lib.methods.cache import Cache, affinity, empty_cache, insert
from tpt_lib.methods.online import begin, finish
from tpt_lib.models.protocol import ClipLike
from tpt_lib.prediction import Prediction
from tpt_lib.prompts.class_prompts import ClassPrompts

__all__ = ["dmn"]


@method(name="dmn", title="DMN-ZS", paper="Zhang et al., CVPR 2024", published="DMN-ZS", online=True)
def dmn(*, beta: float = 5.5, capacity: int = 50, votes: int = 3, weight: float = 1.0) -> OnlineMethod[Cache]:
    r"""Return DMN-ZS: zero-shot probabilities plus those of a memory of past images.

    .. math::
        \mathbf f_k = \mathrm{normalize}(\sum_{\mathbf m \in M_k \cup \{\mathbf t_k\}}
        e^{-\beta(1 - \mathbf m^\top \mathbf v)}\, \mathbf m), \quad
        \mathbf p + w\, \mathrm{softmax}(\tau\, \mathbf f_k^\top \mathbf v)

    An image enters the memory of the class for which its most confident views vote. If a class is
    full, a less uncertain image replaces its most uncertain one. Both happen before the image is predicted.

    Convention: the weight :math:`w` is 1. The authors chose it for each test set with its labels, so a fixed
    weight does not reach their numbers.

    Args:
        beta: sharpness of the memory (default 5.5).
        capacity: images per class (default 50).
        votes: number of views, those of lowest entropy, that decide the class (default 3). The authors make 32 views.
        weight: weight of the memory's probabilities (default 1).

    Returns:
        The method. Its outputs are logarithms of probabilities.

    >>> prompts = tpt_lib.class_prompts(model, ["cat", "dog"])
    >>> found = dmn(capacity=4)
    >>> memory, prediction = found.step(model, prompts, found.init(model, prompts), torch.eye(256)[:5])
    >>> memory.filled.sum()
    tensor(1)
    """
    if capacity < 1 or votes < 1:
        raise ValueError(f"dmn: capacity and votes must be at least 1, but got {capacity} and {votes}")
    init = partial(_init, capacity)
    return OnlineMethod(init, partial(_step, beta, votes, weight))


def _init(capacity: int, model: ClipLike, prompts: ClassPrompts) -> Cache:
    return empty_cache(model, prompts, capacity)


def _step(
    beta: float, votes: int, weight: float, model: ClipLike, prompts: ClassPrompts, memory: Cache, features: Tensor
) -> tuple[Cache, Prediction]:
    text, views = begin("dmn", model, prompts, features)
    image, logits = views[0], unchecked_logits(model, views, text)
    probs = logits.softmax(dim=-1)
    sure = _uncertainty(probs, 1e-6).sort(stable=True).indices[:votes]
    vote = probs.index_select(0, sure).mean(dim=0)
    memory = insert(memory, vote.argmax(), image, _uncertainty(vote, 1e-8))
    own = (beta * (text @ image - 1)).exp()[:, None] * text
    near = affinity(memory, image, beta)
    prototypes = F.normalize((near[:, None] @ memory.keys)[:, 0] + own, dim=-1)
    remembered = unchecked_logits(model, image[None], prototypes)[0].softmax(dim=0)
    mixed = (probs[0] + weight * remembered) / (1 + weight)
    found = mixed.clamp(min=torch.finfo(torch.float32).tiny).log()
    return memory, finish("dmn", prompts, features, found, logits[0])


def _uncertainty(probs: Tensor, eps: float) -> Tensor:
    """Return the entropy, with the constant that the authors add to probabilities."""
    return -(probs * (probs + eps).log()).sum(dim=-1)
