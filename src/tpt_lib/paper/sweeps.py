"""Run the sweeps of section 5: how TPT depends on its settings, and which parameters to tune."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from itertools import product
from typing import Any

from torch import Tensor
from typing_extensions import Unpack

from tpt_lib.evaluation.compare import Labels, table_of
from tpt_lib.evaluation.from_store import with_views
from tpt_lib.evaluation.table import Table
from tpt_lib.features.store import FeatureStore
from tpt_lib.methods.base import get_method
from tpt_lib.methods.cases import Case, MethodLike
from tpt_lib.methods.memo_clip import memo_clip_predict
from tpt_lib.methods.tpt import tpt_predict
from tpt_lib.models.protocol import ClipLike
from tpt_lib.objectives import select_confident
from tpt_lib.prediction import Prediction
from tpt_lib.prompts.class_prompts import ClassPrompts
from tpt_lib.types import Images, ViewOptions
from tpt_lib.views.settings import ViewSettings

__all__ = ["sweep_fractions", "sweep_groups", "sweep_steps", "sweep_views"]

RATES = {"prompt": (2.5e-3, 5e-3, 1e-2), "text": (2.5e-5, 2.5e-4), "image": (2.5e-5, 2.5e-4), "all": (2.5e-5, 2.5e-4)}


def sweep_fractions(
    model: ClipLike,
    images: Images | FeatureStore,
    prompts: ClassPrompts,
    *,
    labels: Labels = None,
    fractions: Sequence[float] = (0.1, 0.3, 0.5, 0.7, 0.9, 1.0),
    **views: Unpack[ViewOptions],
) -> Table:
    r"""Run TPT with several shares :math:`\rho` of the most confident views (figure 4b), next to zero-shot.

    Args:
        model, images, prompts, labels: as for ``compare``.
        **views: as for ``compare``.
        fractions: values of :math:`\rho` (default 0.1 to 1).

    Returns:
        A row for zero-shot and one per fraction.

    >>> prompts = tpt_lib.class_prompts(model, ["cat", "dog"])
    >>> sweep_fractions(model, torch.rand(3, 40, 60), prompts, fractions=[0.5, 1.0], n_views=4).column("fraction")
    [None, 0.5, 1.0]
    """
    methods = {f: partial(tpt_predict, select=partial(select_confident, fraction=f)) for f in fractions}
    source, settings = with_views("sweep_fractions", model, images, **views)
    return _sweep("fraction", methods, model, source, prompts, labels, settings)


def sweep_views(
    model: ClipLike,
    images: Images | FeatureStore,
    prompts: ClassPrompts,
    *,
    labels: Labels = None,
    numbers: Sequence[int] = (8, 16, 32, 64, 128),
    **views: Unpack[ViewOptions],
) -> Table:
    """Run TPT with several numbers of views (figure 5a), next to zero-shot.

    The largest number of views is made and encoded once, and the first 8, 16, … of them are used. Seconds are those of tuning
    alone. Making and encoding views is listed separately, and is proportional to their number.

    Args:
        model, images, prompts, labels: as for ``compare``.
        **views: as for ``compare``, without ``n_views``.
        numbers: numbers of views (default 8 to 128).

    Returns:
        A row for zero-shot and one per number.

    >>> prompts = tpt_lib.class_prompts(model, ["cat", "dog"])
    >>> sweep_views(model, torch.rand(3, 40, 60), prompts, numbers=[2, 4]).column("views")
    [None, 2, 4]
    """
    if "n_views" in views:
        raise ValueError(f"sweep_views: pass the numbers of views as numbers=, not n_views={views['n_views']!r}")
    if not numbers or min(numbers) < 1:
        raise ValueError(f"sweep_views: numbers must be numbers of views, each at least 1, but got {numbers!r}")
    methods = {n: partial(_first_views, n=n) for n in numbers}
    most: Any = {**views, "n_views": max(numbers)}
    source, settings = with_views("sweep_views", model, images, **most)
    return _sweep("views", methods, model, source, prompts, labels, settings)


def sweep_steps(
    model: ClipLike,
    images: Images | FeatureStore,
    prompts: ClassPrompts,
    *,
    labels: Labels = None,
    steps: Sequence[int] = (1, 2, 3, 4),
    **views: Unpack[ViewOptions],
) -> Table:
    """Run TPT with several numbers of steps (figure 5b), next to zero-shot.

    Args:
        model, images, prompts, labels: as for ``compare``.
        **views: as for ``compare``.
        steps: numbers of steps (default 1 to 4).

    Returns:
        A row for zero-shot and one per number.

    >>> prompts = tpt_lib.class_prompts(model, ["cat", "dog"])
    >>> sweep_steps(model, torch.rand(3, 40, 60), prompts, steps=[1, 2], n_views=4).column("steps")
    [None, 1, 2]
    """
    methods = {n: partial(tpt_predict, steps=n) for n in steps}
    source, settings = with_views("sweep_steps", model, images, **views)
    return _sweep("steps", methods, model, source, prompts, labels, settings)


def sweep_groups(
    model: ClipLike,
    images: Images,
    prompts: ClassPrompts,
    *,
    labels: Labels = None,
    rates: Mapping[str, Sequence[float]] = RATES,
    steps: Sequence[int] = (1, 2),
    **views: Unpack[ViewOptions],
) -> Table:
    """Find which parameters to tune (figure 4a): a grid of learning rates and steps for each group, next to zero-shot.

    As in the paper, views are made by AugMix by default, and all are used. ``plot_sweep`` draws the best of each group.

    Args:
        model, images, prompts, labels: as for ``compare``.
        **views: as for ``compare``.
        rates: groups of ``memo_clip_predict`` with the learning rates to try for each (default: all four groups).
        steps: numbers of steps to try for each group and rate (default 1 and 2).

    Returns:
        A row for zero-shot and one per group, rate and number of steps.

    >>> prompts = tpt_lib.class_prompts(model, ["cat", "dog"])
    >>> rates = {"prompt": [5e-3], "image": [2.5e-4]}
    >>> sweep_groups(model, torch.rand(3, 40, 60), prompts, rates=rates, steps=[1], n_views=2).column("group")
    [None, 'prompt', 'image']
    """
    cases: list[Any] = [_case({"group": None, "lr": None, "steps": None}, "zero_shot", prompts)]
    for group, of_group in rates.items():
        for lr, n in product(of_group, steps):
            setting: Any = {"group": group, "lr": lr, "steps": n}
            cases.append(_case(setting, partial(memo_clip_predict, **setting), prompts))
    options: Any = {"recipe": "augmix", **views}
    settings = ViewSettings.of("sweep_groups", **options)
    return table_of(model, images, prompts, labels, cases, settings, "group")


def _first_views(model: ClipLike, prompts: ClassPrompts, features: Tensor, *, n: int) -> Prediction:
    return tpt_predict(model, prompts, features[..., :n, :])


def _sweep(
    column: str,
    methods: Mapping[Any, Any],
    model: ClipLike,
    images: Images | FeatureStore,
    prompts: ClassPrompts,
    labels: Labels,
    views: ViewSettings,
) -> Table:
    cases = [_case({column: None}, "zero_shot", prompts)]
    cases += [_case({column: value}, method, prompts, title="TPT") for value, method in methods.items()]
    return table_of(model, images, prompts, labels, cases, views, column)


def _case(
    columns: dict[str, Any], method: MethodLike, prompts: ClassPrompts, title: str | None = None
) -> tuple[dict[str, Any], Case]:
    entry = get_method(method)
    name = title or entry.title
    return {"method": name, **columns}, Case(name, entry, prompts)
