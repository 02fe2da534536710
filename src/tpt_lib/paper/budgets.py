"""Measure the budgets of ways to prompt (appendix): data, iterations, parameters and seconds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import astuple
from functools import partial
from statistics import median
from typing import Any

from torch import Tensor
from typing_extensions import Unpack

from tpt_lib.evaluation.profiling import measured
from tpt_lib.evaluation.table import Table
from tpt_lib.features.encode import encode_views
from tpt_lib.methods.cases import Case, Methods, Prompts, as_cases
from tpt_lib.models.protocol import ClipLike
from tpt_lib.prediction import Prediction
from tpt_lib.prompts.class_prompts import ClassPrompts, check_prompts, is_learned
from tpt_lib.types import ImageLike, ViewOptions
from tpt_lib.views.augment import augment_views
from tpt_lib.views.settings import ViewSettings

__all__ = ["budget_table", "strategy_table"]

REPEATS = 3
HAND_CRAFTED_AND_TPT: Methods = {"hand-crafted": "zero_shot", "TPT": "tpt"}


def budget_table(
    model: ClipLike,
    image: ImageLike,
    prompts: ClassPrompts,
    *,
    methods: Methods = HAND_CRAFTED_AND_TPT,
    training: Mapping[str, tuple[int, int]] | None = None,
    **views: Unpack[ViewOptions],
) -> Table:
    """Measure the training and inference budgets of ways to prompt (appendix, table of budgets).

    Seconds are from the image to the prediction, including making and encoding views: the median of three runs after a first
    one. A method that neither tunes nor selects, and gives the same answer for the plain image alone, is timed with one view.
    *Added* parameters are those of a learned context and of CoCoOp's network; *tuned* ones are found for one image and
    dropped.

    Args:
        model: the model.
        image: one image.
        prompts: hand-crafted prompts.
        methods: as for ``compare`` (default: hand-crafted and TPT). CoOp is ``{"CoOp": ("zero_shot", coop)}``.
        training: number of samples and of iterations that learned prompts were trained with, by the method's name (default
            None: unknown).
        **views: the keywords of ``augment_views``.

    Returns:
        A row per method: ``method``, ``seconds``, ``views``, ``samples``, ``iterations``, ``added`` and ``tuned``. Missing
        values are None.

    >>> prompts = tpt_lib.class_prompts(model, ["cat", "dog"])
    >>> budget_table(model, torch.rand(3, 40, 60), prompts, n_views=4).column("tuned")
    [0, 1024]
    """
    check_prompts("budget_table", prompts)
    device, settings = prompts.context.device, ViewSettings.of("budget_table", **views)

    def given(case: Case, n_views: int) -> Tensor:
        options: Any = {**vars(settings), "n_views": n_views, "device": device}
        made = augment_views(image, model.image_spec, **options)
        return made if case.needs_views else encode_views(model, made)

    def run(case: Case, n_views: int) -> Prediction:
        return _predict(model, case, given(case, n_views))

    rows = []
    for case in as_cases("budget_table", methods, prompts):
        all_views = given(case, settings.n_views)
        found = _predict(model, case, all_views)
        alone = found.tuned is None and found.selected is None
        alone = alone and _predict(model, case, all_views[:1]).logits.allclose(found.logits, rtol=1e-4, atol=1e-4)
        number = 1 if alone else settings.n_views
        costs = [measured(partial(run, case, number), device)[1] for _ in range(REPEATS)]
        learned = any(map(is_learned, _all(case.prompts)))
        samples, iterations = (training or {}).get(case.name, (None, None)) if learned else (0, 0)
        rows.append(
            {
                "method": case.name,
                "seconds": median(cost.seconds for cost in costs),
                "views": number,
                "samples": samples,
                "iterations": iterations,
                "added": sum(map(_added, _all(case.prompts))),
                "tuned": _tuned(found),
            }
        )
    note = (
        "Seconds from the image to the prediction; training samples and iterations; parameters added to the model, and "
        "parameters tuned for one image and dropped."
    )
    return Table(tuple(rows), note)


def strategy_table(
    model: ClipLike,
    image: ImageLike,
    prompts: ClassPrompts,
    *,
    methods: Methods = HAND_CRAFTED_AND_TPT,
    **views: Unpack[ViewOptions],
) -> Table:
    """Find which ways to prompt are learnable, need no training data, or depend on the input (appendix, table of strategies).

    The answers come from the prompts and from how a method uses them on one image.

    Args:
        model, image, prompts, methods: as for ``budget_table``.
        **views: as for ``budget_table``.

    Returns:
        A row per method: ``method``, ``learnable``, ``no training data`` and ``input-dependent``.

    >>> prompts = tpt_lib.class_prompts(model, ["cat", "dog"])
    >>> strategy_table(model, torch.rand(3, 40, 60), prompts, n_views=4).column("input-dependent")
    [False, True]
    """
    check_prompts("strategy_table", prompts)
    settings = ViewSettings.of("strategy_table", **views)
    cases = as_cases("strategy_table", methods, prompts)
    made = augment_views(image, model.image_spec, device=prompts.context.device, **vars(settings))
    features = encode_views(model, made)
    rows = []
    for case in cases:
        tuned = bool(case.predict(model, [features], [made])[0].tuned)
        learned = any(map(is_learned, _all(case.prompts)))
        rows.append(
            {
                "method": case.name,
                "learnable": learned or tuned,
                "no training data": not learned,
                "input-dependent": tuned or any(one.meta_net is not None for one in _all(case.prompts)),
            }
        )
    return Table(tuple(rows))


def _predict(model: ClipLike, case: Case, given: Tensor) -> Prediction:
    return case.predict(model, [given], [given])[0]


def _all(prompts: Prompts) -> list[ClassPrompts]:
    return [prompts] if isinstance(prompts, ClassPrompts) else list(prompts)


def _tuned(found: Prediction) -> int | None:
    """Return the number of tuned parameters, or None if something other than a context was tuned."""
    if not found.tuned:
        return 0
    return None if found.context is None else found.context.numel()


def _added(prompts: ClassPrompts) -> int:
    """Return the number of parameters that learned prompts add."""
    if not is_learned(prompts):
        return 0
    network: tuple[Tensor, ...] = () if prompts.meta_net is None else astuple(prompts.meta_net)
    name_tokens = () if prompts.name_tokens is None else (prompts.name_tokens,)
    return sum(tensor.numel() for tensor in (prompts.context, *network, *name_tokens))
