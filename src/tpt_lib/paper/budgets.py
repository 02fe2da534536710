"""What ways of prompting need and cost (appendix): data, iterations, parameters, seconds; read off the prompts themselves."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import astuple
from statistics import median
from typing import Any

from torch import Tensor

from tpt_lib.evaluation.compare import Method, takes_views, with_prompts
from tpt_lib.evaluation.profiling import measured
from tpt_lib.evaluation.table import Table
from tpt_lib.features.encode import encode_views
from tpt_lib.methods.baselines import zero_shot_predict
from tpt_lib.methods.tpt import tpt_predict
from tpt_lib.models.protocol import ClipLike
from tpt_lib.prediction import Prediction
from tpt_lib.prompts.class_prompts import ClassPrompts, is_learned
from tpt_lib.views.augment import augment_views

__all__ = ["budget_table", "strategy_table"]

REPEATS = 3


def budget_table(
    model: ClipLike,
    prompts: ClassPrompts,
    image: Any,
    *,
    methods: Mapping[str, Method | tuple[Method, Any]] | None = None,
    training: Mapping[str, tuple[int, int]] | None = None,
    n_views: int = 64,
    **views: Any,
) -> Table:
    """Training and inference budgets of ways to prompt (appendix, the table of budgets).

    Seconds are from the image to the prediction, making and encoding views included, after a first run: the median of three.
    A method that neither tunes nor selects, and says the same of the plain image alone, is timed with that alone.
    Parameters are counted, not cited: *added* are those of a learned context and of CoCoOp's network, *tuned* those that are
    found for an image and dropped.

    Args:
        model: the model.
        prompts: hand-crafted ones.
        image: one image.
        methods: as for ``compare``; by default hand-crafted and TPT. CoOp is ``(zero_shot_predict, coop)``.
        training: for methods with learned prompts the number of samples and of iterations they were trained with; what is
            not given is unknown.
        n_views: how many views, for the methods that use them.
        **views: goes to ``augment_views``.

    >>> prompts = tpt_lib.class_prompts(model, ["cat", "dog"])
    >>> budget_table(model, prompts, torch.rand(3, 40, 60), n_views=4).column("tuned")
    [0, 1024]
    """
    device = prompts.context.device

    def given(method: Method, number: int) -> Tensor:
        made = augment_views(image, model.image_spec, n_views=number, device=device, **views)
        return made if takes_views(method) else encode_views(model, made)

    rows = []
    for name, method, own in _methods(methods, prompts):
        first = given(method, n_views)
        found = method(model, own, first)
        alone = not found.tuned and found.selected is None and method(model, own, first[:1]).logits.equal(found.logits)
        number = 1 if alone else n_views

        def run(method: Method = method, own: Any = own, number: int = number) -> Prediction:
            return method(model, own, given(method, number))

        costs = [measured(run, device)[1] for _ in range(REPEATS)]
        samples, iterations = (training or {}).get(name, (None, None)) if any(map(is_learned, _all(own))) else (0, 0)
        rows.append(
            {
                "method": name,
                "seconds": median(cost.seconds for cost in costs),
                "views": number,
                "samples": samples,
                "iterations": iterations,
                "added": sum(map(_added, _all(own))),
                "tuned": _tuned(found),
            }
        )
    note = (
        "Seconds from the image to the prediction; training samples and iterations; parameters added to the model, and "
        "parameters tuned for an image and dropped."
    )
    return Table(tuple(rows), note)


def strategy_table(
    model: ClipLike,
    prompts: ClassPrompts,
    image: Any,
    *,
    methods: Mapping[str, Method | tuple[Method, Any]] | None = None,
    **views: Any,
) -> Table:
    """Which ways to prompt are learnable, need no training data, depend on the input (appendix, the table of strategies).

    It is read off the prompts and off what a method does with them on one image.

    Args:
        model: as for ``budget_table``, and so are ``prompts``, ``image``, ``methods`` and ``**views``.

    >>> prompts = tpt_lib.class_prompts(model, ["cat", "dog"])
    >>> strategy_table(model, prompts, torch.rand(3, 40, 60), n_views=4).column("input-dependent")
    [False, True]
    """
    made = augment_views(image, model.image_spec, device=prompts.context.device, **views)
    features = encode_views(model, made)
    rows = []
    for name, method, own in _methods(methods, prompts):
        tuned = method(model, own, made if takes_views(method) else features).tuned
        learned = any(map(is_learned, _all(own)))
        rows.append(
            {
                "method": name,
                "learnable": learned or tuned,
                "no training data": not learned,
                "input-dependent": tuned or any(one.bias_net is not None for one in _all(own)),
            }
        )
    return Table(tuple(rows))


def _methods(methods: Mapping[str, Any] | None, prompts: ClassPrompts) -> list[tuple[str, Method, Any]]:
    given = {"hand-crafted": zero_shot_predict, "TPT": tpt_predict} if methods is None else methods
    return [(name, *with_prompts(each, prompts)) for name, each in given.items()]


def _all(prompts: Any) -> list[ClassPrompts]:
    return [prompts] if isinstance(prompts, ClassPrompts) else list(prompts)


def _tuned(found: Prediction) -> int | None:
    """The numbers that were tuned; unknown where they were not a context."""
    if not found.tuned:
        return 0
    return None if found.context is None else found.context.numel()


def _added(prompts: ClassPrompts) -> int:
    """The numbers that learned prompts bring along, counted."""
    if not is_learned(prompts):
        return 0
    network: tuple[Tensor, ...] = () if prompts.bias_net is None else astuple(prompts.bias_net)
    names = () if prompts.name_tokens is None else (prompts.name_tokens,)
    return sum(tensor.numel() for tensor in (prompts.context, *network, *names))
