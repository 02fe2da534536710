"""Reproduce figure 3: learn prompts on one dataset, and use them on another."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from torch import Tensor
from typing_extensions import Unpack

from tpt_lib.evaluation.data.eval_set import EvalSet
from tpt_lib.evaluation.data.subsets import sample_few_shot
from tpt_lib.evaluation.metrics import require_torchmetrics
from tpt_lib.evaluation.run.evaluate import EvaluateOptions, evaluate
from tpt_lib.evaluation.table import Table
from tpt_lib.methods.base import check_arguments
from tpt_lib.methods.coop import Fitted, fit_coop
from tpt_lib.models.protocol import ClipLike
from tpt_lib.prompts.class_prompts import class_prompts
from tpt_lib.prompts.contexts import LearnedPrompt, gaussian_context
from tpt_lib.types import PathLike, check_options

__all__ = ["relative_improvement", "transfer_matrix"]


def relative_improvement(accuracies: Mapping[tuple[str, str], float], zero_shot: Mapping[str, float]) -> Table:
    """Return the matrix of figure 3: ``(acc − acc_base) / acc_base``, the gain of a prompt from one dataset on another.

    Args:
        accuracies: accuracy for each pair (source, target). A method without a source, such as TPT, uses its own name as one.
            Missing pairs are None in the matrix.
        zero_shot: accuracy of zero-shot on each target, in the same unit.

    Returns:
        A row per source: ``source``, a column per target in the order of ``zero_shot``, and ``average`` over the targets that
        have a value. ``plot_improvement`` draws it.

    >>> table = relative_improvement({("dtd", "flowers102"): 33.41}, {"flowers102": 61.75})
    >>> round(table.rows[0]["flowers102"], 2)
    -0.46
    """
    if not accuracies:
        raise ValueError("relative_improvement: there are no accuracies; pass them as {(source, target): accuracy}")
    if missing := sorted({target for _, target in accuracies} - set(zero_shot)):
        raise ValueError(f"relative_improvement: no zero-shot accuracy for {', '.join(missing)}; it has {[*zero_shot]}")
    if bad := [target for target, accuracy in zero_shot.items() if not accuracy > 0]:
        raise ValueError(f"relative_improvement: zero-shot accuracies must be above 0, but those of {bad} are not")
    if clash := {"source", "average"} & set(zero_shot):
        raise ValueError(f"relative_improvement: {sorted(clash)} are names of columns; rename the datasets")
    rows = []
    for source in dict.fromkeys(source for source, _ in accuracies):
        values = {
            target: (accuracies[source, target] - base) / base if (source, target) in accuracies else None
            for target, base in zero_shot.items()
        }
        known = [value for value in values.values() if value is not None]
        rows.append({"source": source, **values, "average": statistics.fmean(known)})
    return Table(tuple(rows), "Relative improvement over zero-shot: a row per source, a column per target.")


BASE, TUNED = "zero-shot", "TPT"

COOP = partial(fit_coop, epochs=200)


def transfer_matrix(
    model: ClipLike,
    sources: Sequence[EvalSet],
    targets: Sequence[EvalSet],
    *,
    out: PathLike,
    shots: int = 16,
    context: str | Tensor | LearnedPrompt | None = None,
    fit: Callable[..., Fitted] = COOP,
    seed: int = 0,
    **evaluation: Unpack[EvaluateOptions],
) -> Table:
    """Compute the matrix of figure 3: learn a prompt on each source, and evaluate it on each target, next to zero-shot and TPT.

    A call with the same ``out`` resumes an experiment that was stopped while learning or evaluating.

    Args:
        model: the model.
        sources: sets to learn from, such as ``load_dataset(name, root, split="train")``.
        targets: sets to evaluate on. A source is not evaluated on the target of its own name, as in the paper.
        out: folder for the learned prompts in CoOp's format and for a run file per target, which ``Report.read`` takes.
        shots: number of images per class to learn from (default 16).
        context: initial context, as for ``class_prompts`` (default None: CoOp's 16 random tokens).
        fit: function that learns the prompt (default ``fit_coop`` with 200 epochs, CoOp's number for 16 shots);
            ``fit_cocoop`` with ``context="a photo of a"`` is the right half of the figure.
        seed: seed of the shots, the initial context and learning (default 0).
        **evaluation: the keywords of ``evaluate`` (``seeds=``, ``num_workers=``, ``n_views=``, …).

    Returns:
        The matrix, as ``relative_improvement`` returns it: a row per source, and TPT as the last row.

    >>> image = torch.rand(3, 40, 60)
    >>> one, two = (tpt_lib.EvalSet(name, [(image, 0), (image, 1)], ("cat", "dog")) for name in ("one", "two"))
    >>> fit = partial(fit_coop, epochs=1)
    >>> table = transfer_matrix(model, [one], [one, two], out=folder, fit=fit, n_views=4, num_workers=0)
    >>> table.column("source"), table.column("one"), table.column("two")
    (['one', 'TPT'], [None, 0.0], [0.0, 0.0])
    """
    check_options("transfer_matrix", evaluation, EvaluateOptions)
    check_arguments("transfer_matrix: fit", fit, 4, seed=seed, checkpoint=None)
    _check(sources, targets)
    require_torchmetrics()
    folder = Path(out)
    folder.mkdir(parents=True, exist_ok=True)
    start = gaussian_context(model, 16, seed=seed) if context is None else context
    learned = {one.name: _learned(model, one, start, fit, shots, seed, folder) for one in sources}
    zero_shot: dict[str, float] = {}
    accuracies: dict[str, dict[tuple[str, str], float]] = {name: {} for name in [*learned, TUNED]}
    for target in targets:
        methods: dict[str, Any] = {BASE: "zero_shot", TUNED: "tpt"}
        for name in learned:
            if name == target.name:
                continue
            prompts = class_prompts(model, target.classes, template=target.template, context=learned[name])
            methods[name] = ("zero_shot", prompts)
        report = evaluate(model, target, methods, out=folder / f"{target.name}.jsonl", **evaluation)
        top1 = {row["method"]: row["top1"] or 0.0 for row in report.rows()}
        zero_shot[target.name] = top1.pop(BASE)
        for name, value in top1.items():
            accuracies[name][name, target.name] = value
    return relative_improvement({pair: top1 for row in accuracies.values() for pair, top1 in row.items()}, zero_shot)


def _learned(
    model: ClipLike, source: EvalSet, start: Any, fit: Callable[..., Fitted], shots: int, seed: int, folder: Path
) -> LearnedPrompt:
    chosen = source.take(sample_few_shot(source.labels, shots, seed=seed))
    images = [chosen.samples[i][0] for i in range(len(chosen))]
    prompts = class_prompts(model, source.classes, template=source.template, context=start)
    file = folder / f"{source.name}-{shots}-shots-seed-{seed}.pth.tar"
    found = fit(model, prompts, images, chosen.labels, seed=seed, checkpoint=file).prompts
    return LearnedPrompt(found.context, found.meta_net)


def _check(sources: Sequence[EvalSet], targets: Sequence[EvalSet]) -> None:
    for what, sets in {"sources": sources, "targets": targets}.items():
        names = [one.name for one in sets]
        if not names or len(set(names)) < len(names):
            raise ValueError(f"transfer_matrix: {what} must be one or more sets of different names, but got {names}")
        if clash := {BASE, TUNED} & set(names):
            raise ValueError(f"transfer_matrix: {sorted(clash)} are names of methods; rename the {what}")
