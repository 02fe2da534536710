"""The sweeps of section 5: how TPT depends on its settings, and which parameters are worth tuning."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from itertools import product
from typing import Any, cast

from tpt_lib.evaluation.compare import Labels, Method, table_of
from tpt_lib.evaluation.table import Table
from tpt_lib.methods.baselines import zero_shot_predict
from tpt_lib.methods.memo_clip import group_predict
from tpt_lib.methods.tpt import tpt_predict
from tpt_lib.models.protocol import ClipLike
from tpt_lib.objectives import select_confident
from tpt_lib.prompts.class_prompts import ClassPrompts

__all__ = ["sweep_fractions", "sweep_groups", "sweep_steps", "sweep_views"]

RATES = {"prompt": (2.5e-3, 5e-3, 1e-2), "text": (2.5e-5, 2.5e-4), "image": (2.5e-5, 2.5e-4), "all": (2.5e-5, 2.5e-4)}


def sweep_fractions(
    model: ClipLike,
    prompts: ClassPrompts,
    images: Any,
    labels: Labels = None,
    *,
    fractions: Sequence[float] = (0.1, 0.3, 0.5, 0.7, 0.9, 1.0),
    **views: Any,
) -> Table:
    r"""TPT with various shares :math:`\rho` of the most confident views (figure 4b), beside zero-shot.

    Args:
        model: as for ``compare``, and so are ``prompts``, ``images``, ``labels`` and ``**views``.
        fractions: the values of :math:`\rho`.

    >>> prompts = tpt_lib.class_prompts(model, ["cat", "dog"])
    >>> sweep_fractions(model, prompts, torch.rand(3, 40, 60), fractions=[0.5, 1.0], n_views=4).column("fraction")
    [None, 0.5, 1.0]
    """
    methods = {f: partial(tpt_predict, select=partial(select_confident, fraction=f)) for f in fractions}
    return _sweep("fraction", methods, model, prompts, images, labels, views)


def sweep_views(
    model: ClipLike,
    prompts: ClassPrompts,
    images: Any,
    labels: Labels = None,
    *,
    numbers: Sequence[int] = (8, 16, 32, 64, 128),
    **views: Any,
) -> Table:
    """TPT with various numbers of views (figure 5a), beside zero-shot.

    The most views are made and encoded once; of them the first 8, 16, … are used. Seconds are those of tuning alone: those of
    making and encoding views, which are stated on their own, are in proportion to the number.

    Args:
        model: as for ``compare``, and so are ``prompts``, ``images``, ``labels`` and ``**views``.
        numbers: how many views.

    >>> prompts = tpt_lib.class_prompts(model, ["cat", "dog"])
    >>> sweep_views(model, prompts, torch.rand(3, 40, 60), numbers=[2, 4]).column("views")
    [None, 2, 4]
    """
    if "n_views" in views or not numbers or min(numbers) < 1:
        raise ValueError(
            f"sweep_views: the numbers of views are given as numbers=, each at least 1, but got {numbers!r}"
        )
    methods = {n: lambda m, p, features, n=n: tpt_predict(m, p, features[:n]) for n in numbers}
    return _sweep("views", methods, model, prompts, images, labels, {**views, "n_views": max(numbers)})


def sweep_steps(
    model: ClipLike,
    prompts: ClassPrompts,
    images: Any,
    labels: Labels = None,
    *,
    steps: Sequence[int] = (1, 2, 3, 4),
    **views: Any,
) -> Table:
    """TPT with various numbers of steps (figure 5b), beside zero-shot.

    Args:
        model: as for ``compare``, and so are ``prompts``, ``images``, ``labels`` and ``**views``.
        steps: how many.

    >>> prompts = tpt_lib.class_prompts(model, ["cat", "dog"])
    >>> sweep_steps(model, prompts, torch.rand(3, 40, 60), steps=[1, 2], n_views=4).column("steps")
    [None, 1, 2]
    """
    methods = {n: partial(tpt_predict, steps=n) for n in steps}
    return _sweep("steps", methods, model, prompts, images, labels, views)


def sweep_groups(
    model: ClipLike,
    prompts: ClassPrompts,
    images: Any,
    labels: Labels = None,
    *,
    rates: Mapping[str, Sequence[float]] | None = None,
    steps: Sequence[int] = (1, 2),
    recipe: Any = "augmix",
    **views: Any,
) -> Table:
    """Which parameters to tune (figure 4a): a grid of learning rates and steps for each group, beside zero-shot.

    As in the paper, views are AugMix and none is left out. ``plot_sweep`` draws the best of each group's grid.

    Args:
        model: as for ``compare``, and so are ``prompts``, ``images``, ``labels`` and ``**views``.
        rates: the groups of ``group_predict`` to try, with the learning rates for each; by default all four.
        steps: how many, of each group and rate.
        recipe: how views are made.

    >>> prompts = tpt_lib.class_prompts(model, ["cat", "dog"])
    >>> rates = {"prompt": [5e-3], "image": [2.5e-4]}
    >>> sweep_groups(model, prompts, torch.rand(3, 40, 60), rates=rates, steps=[1], n_views=2).column("group")
    [None, 'prompt', 'image']
    """
    grid = [(group, lr, n) for group, of_group in (rates or RATES).items() for lr, n in product(of_group, steps)]
    cases: list[Any] = [({"method": "zero-shot", "group": None, "lr": None, "steps": None}, zero_shot_predict, prompts)]
    for group, lr, n in grid:
        method: Method = partial(cast("Any", group_predict), group=group, lr=lr, steps=n)
        cases.append(({"method": "tuned", "group": group, "lr": lr, "steps": n}, method, prompts))
    return table_of(model, prompts, images, labels, cases, {**views, "recipe": recipe}, "group")


def _sweep(
    column: str,
    methods: Mapping[Any, Method],
    model: ClipLike,
    prompts: ClassPrompts,
    images: Any,
    labels: Any,
    views: Any,
) -> Table:
    cases = [({"method": "zero-shot", column: None}, zero_shot_predict, prompts)]
    cases += [({"method": "TPT", column: value}, method, prompts) for value, method in methods.items()]
    return table_of(model, prompts, images, labels, cases, views, column)
