"""Bongard problems: a context and two class tokens, tuned on the support images of one problem (sections 3.2 and 4.3)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import groupby, islice
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from tpt_lib.features.encode import as_features
from tpt_lib.logits import unchecked_logits
from tpt_lib.methods.bongard_prediction import SIDES, BongardPrediction, ImagesOrFeatures, Problem
from tpt_lib.models.protocol import ClipLike
from tpt_lib.prompts.class_prompts import ClassPrompts, class_prompts
from tpt_lib.prompts.contexts import gaussian_context
from tpt_lib.prompts.templates import CONTEXT
from tpt_lib.tuning.tune import tune_prompt
from tpt_lib.types import kind_of

__all__ = ["BongardPrediction", "bongard_prototype", "bongard_tpt", "bongard_tpt_many"]


Solver = Callable[..., BongardPrediction]


def bongard_tpt(
    model: ClipLike,
    positives: ImagesOrFeatures,
    negatives: ImagesOrFeatures,
    queries: ImagesOrFeatures,
    *,
    steps: int = 64,
    lr: float = 5e-3,
    n_context: int = 4,
    sigma: float = 0.02,
    seed: int = 0,
    words: tuple[str, str] | None = None,
    context: str | None = None,
) -> BongardPrediction:
    r"""Solve one Bongard problem: learn its two sides from the support images, then judge the queries.

    .. math:: \mathbf p^*, \mathbf c^* = \arg\min_{\mathbf p, \mathbf c} -\sum_i \log p_{\mathbf p, \mathbf c}(y_i \mid X_i)

    The prompts are [start, context, class token, ".", end]; context and class tokens start from
    :math:`\mathcal N(0, \sigma^2)`. Each image is encoded once.

    Args:
        model: the model.
        positives: images that show the concept: a list (PIL images, paths, arrays, tensors), a tensor ``(P, 3, H, W)``, or
            their features ``(P, E)``.
        negatives: images that do not, given the same way; any number.
        queries: the images to judge, given the same way.
        steps: number of AdamW steps (default 64).
        lr: learning rate (default 5e-3).
        n_context: number of learned context tokens (default 4).
        sigma: standard deviation of the initial tokens (default 0.02).
        seed: seed of the initial tokens (default 0), which are the same for every problem.
        words: two fixed words, such as ``("True", "False")``, instead of learned class tokens (default None).
        context: fixed words, such as ``"a photo of a"``, instead of the learned context (default None).

    Returns:
        Verdicts on the queries.

    >>> sides = torch.nn.functional.normalize(torch.randn(2, 1, 256) + 0.3 * torch.randn(2, 7, 256), dim=-1)
    >>> result = bongard_tpt(model, sides[0, :6], sides[1, :6], sides[:, 6], steps=8)
    >>> result.verdicts, result.losses.shape
    (('positive', 'negative'), torch.Size([9]))
    """
    keywords: Any = {"n_context": n_context, "sigma": sigma, "seed": seed, "words": words, "context": context}
    return bongard_tpt_many(model, [(positives, negatives, queries)], steps=steps, lr=lr, **keywords)[0]


def bongard_tpt_many(
    model: ClipLike,
    problems: Iterable[Problem],
    *,
    steps: int = 64,
    lr: float = 5e-3,
    n_context: int = 4,
    sigma: float = 0.02,
    seed: int = 0,
    words: tuple[str, str] | None = None,
    context: str | None = None,
    batch_size: int = 8,
) -> list[BongardPrediction]:
    """Solve several Bongard problems, each with its own tokens and optimizer, as ``bongard_tpt`` solves one.

    Args:
        model: the model.
        problems: tuples (positives, negatives, queries), each as ``bongard_tpt`` takes them.
        steps, lr, n_context, sigma, seed, words, context: as for ``bongard_tpt``.
        batch_size: number of problems tuned together (default 8), if they follow each other and have equally many images.
            Affects speed and memory, not results.

    Returns:
        One result per problem.

    >>> features = torch.nn.functional.normalize(torch.randn(3, 14, 256), dim=-1)
    >>> results = bongard_tpt_many(model, [(f[:6], f[6:12], f[12:]) for f in features], steps=2)
    >>> len(results)
    3
    """
    if batch_size < 1:
        raise ValueError(f"bongard_tpt_many: batch_size must be at least 1, but got {batch_size}")
    prompts = _prompts(model, n_context, sigma, seed, words, context)
    if steps and words is not None and context is not None:
        raise ValueError(
            "bongard_tpt: with fixed words and a fixed context there is nothing to tune; leave one out, or pass steps=0"
        )
    found: list[BongardPrediction] = []
    encoded = (_encoded(model, problem) for problem in problems)
    for _, alike in groupby(encoded, key=lambda one: (len(one[1][0]), len(one[1][1]))):
        while group := list(islice(alike, batch_size)):
            found += _solve(model, prompts, group, steps, lr)
    return found


def bongard_prototype(
    model: ClipLike, positives: ImagesOrFeatures, negatives: ImagesOrFeatures, queries: ImagesOrFeatures
) -> BongardPrediction:
    """Solve a Bongard problem without a prompt: a query belongs to the side whose mean image feature is nearer.

    Args:
        model: the model; its text tower is not used.
        positives, negatives, queries: as for ``bongard_tpt``.

    Returns:
        Verdicts on the queries.

    >>> sides = torch.nn.functional.normalize(torch.randn(2, 1, 256) + 0.3 * torch.randn(2, 7, 256), dim=-1)
    >>> bongard_prototype(model, sides[0, :6], sides[1, :6], sides[:, 6]).verdicts
    ('positive', 'negative')
    """
    problem, (positive, negative, query) = _encoded(model, (positives, negatives, queries))
    prototypes = F.normalize(torch.stack([positive.mean(dim=0), negative.mean(dim=0)]), dim=-1)
    supports = unchecked_logits(model, torch.cat([positive, negative]), prototypes)
    logits = unchecked_logits(model, query, prototypes)
    return BongardPrediction(logits, supports, len(positive), torch.empty(0), False, images=problem)


SOLVERS: Mapping[str, Solver] = {"prototype": bongard_prototype, "tpt": bongard_tpt}


def _prompts(
    model: ClipLike, n_context: int, sigma: float, seed: int, words: Sequence[str] | None, context: str | None
) -> ClassPrompts:
    if n_context < 0:
        raise ValueError(f"bongard_tpt: n_context must be 0 or more, but got {n_context}")
    if words is not None and (isinstance(words, str) or len(words) != 2):
        raise ValueError(f"bongard_tpt: words must be two, for positive and negative, but got {words!r}")
    if context is not None and not isinstance(context, str):
        raise TypeError(f"bongard_tpt: context must be fixed words, such as 'a photo of', but got {kind_of(context)}")
    tokens = gaussian_context(model, n_context + 2, sigma=sigma, seed=seed)
    learned: Any = {"name_tokens": tokens[n_context:, None]} if words is None else {}
    if context is None:
        return class_prompts(model, words or SIDES, template="{}.", context=tokens[:n_context], **learned)
    prompts = class_prompts(model, words or SIDES, template=f"{context} {{}}.", **learned)
    fixed = prompts.roles.masked_fill(prompts.roles == CONTEXT, 0)
    return replace(prompts, roles=fixed, context=prompts.context[:0])


def _encoded(model: ClipLike, problem: Problem) -> tuple[Problem, list[Tensor]]:
    if not isinstance(problem, tuple | list) or len(problem) != 3:
        raise ValueError(
            "bongard_tpt_many: a problem is a tuple (positives, negatives, queries), but got "
            f"{f'{len(problem)} parts' if isinstance(problem, tuple | list) else type(problem).__name__}"
        )
    for what, images in zip(("positives", "negatives", "queries"), problem, strict=True):
        if isinstance(images, list | tuple | Tensor) and len(images) == 0:
            raise ValueError(f"bongard_tpt: {what} is empty; a problem needs at least one image of each kind")
    features = [as_features("bongard_tpt", model, images) for images in problem]
    if len(widths := {part.shape[1] for part in features}) > 1:
        raise ValueError(
            f"bongard_tpt: features of one problem must come from one model, but have widths {sorted(widths)}"
        )
    return (problem[0], problem[1], problem[2]), features


def _solve(
    model: ClipLike, prompts: ClassPrompts, group: list[tuple[Problem, list[Tensor]]], steps: int, lr: float
) -> list[BongardPrediction]:
    """Solve problems with equally many supports together."""
    supports = torch.stack([torch.cat([positive, negative]) for _, (positive, negative, _) in group])
    positives = len(group[0][1][0])
    everything = torch.arange(supports.shape[1], device=supports.device)
    labels = (everything >= positives).long()
    tuned = tune_prompt(
        model,
        prompts,
        supports,
        objective=lambda logits: F.cross_entropy(logits, labels),
        select=lambda _: everything,
        steps=steps,
        lr=lr,
    )
    return [
        BongardPrediction(
            logits=unchecked_logits(model, query, tuned.text_features[i]),
            support_logits=unchecked_logits(model, supports[i], tuned.text_features[i]),
            positives=positives,
            losses=tuned.losses[i],
            tuned=steps > 0 and bool(tuned.applied[i]),
            context=tuned.context[i],
            name_tokens=None if tuned.name_tokens is None else tuned.name_tokens[i],
            images=problem,
        )
        for i, (problem, (_, _, query)) in enumerate(group)
    ]
