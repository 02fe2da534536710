"""Make the header and the rows of a run file."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from jaxtyping import Float
from torch import Tensor

from tpt_lib.evaluation.run_schema import Header, MethodResult, Row, ZeroShot, json_line
from tpt_lib.objectives import entropy

__all__ = ["error_row", "method_result", "method_results", "result_row", "run_header"]

PACKAGES = ("tpt_lib", "torch", "torchvision", "open_clip_torch", "pillow", "numpy")


def run_header(
    dataset: str,
    split: str,
    classes: Sequence[str],
    methods: Iterable[str],
    seeds: Sequence[int],
    n: int,
    settings: Mapping[str, Any],
) -> Header:
    """Return the header of a run.

    Args:
        dataset: name of the dataset.
        split: name of its split.
        classes: class names in the order of the labels.
        methods: names of the methods.
        seeds: seeds of the run.
        n: number of samples per seed.
        settings: everything else that results depend on, in JSON types.
    """
    identity: dict[str, Any] = {
        "dataset": dataset,
        "split": split,
        "classes": list(classes),
        "methods": list(methods),
        "seeds": list(seeds),
        "n": n,
        "settings": dict(settings),
    }
    strict = {**identity, "settings": {name: _strict(name, value) for name, value in settings.items()}}
    digest = hashlib.sha256(json_line(strict)).hexdigest()[:16]
    return Header(kind="run", **identity, versions=_versions(), hash=digest)  # type: ignore[typeddict-item]


def _strict(name: str, setting: Any) -> Any:
    """Return a setting, but only the digest of a ``dataset_identity``: the rest may differ between parts of a run."""
    return setting["digest"] if name == "data" and isinstance(setting, dict) and "digest" in setting else setting


def _versions() -> dict[str, str]:
    found = {}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


def result_row(
    seed: int,
    sample: int,
    truth: int | str | None,
    methods: Mapping[str, MethodResult],
    seconds: Mapping[str, float],
    path: str | None = None,
) -> Row:
    """Return the row of a sample with each method's result.

    Args:
        seed: seed of the views or of the initial tokens.
        sample: index of the sample.
        truth: class index, or ``"positive"`` or ``"negative"``.
        methods: each method's ``method_result``.
        seconds: seconds per image of each method, and of shared work by its own name (``"views"``, ``"features"``).
        path: where the image is, or None (default).
    """
    rounded = {name: round(value, 6) for name, value in seconds.items()}
    return Row(kind="row", seed=seed, sample=sample, path=path, truth=truth, methods=dict(methods), seconds=rounded)


def error_row(seed: int, sample: int, truth: int | str | None, error: str, path: str | None = None) -> Row:
    """Return the row of a sample that could not be used, with the type of the error and its message."""
    return Row(kind="row", seed=seed, sample=sample, path=path, truth=truth, error=error)


def method_results(
    logits: Float[Tensor, "b k"], before: Float[Tensor, "b k"] | None = None, *, top: int = 5
) -> list[MethodResult]:
    """Return a method's answer for each image of a batch.

    Args:
        logits: logits of the classes ``(B, K)``.
        before: logits of the plain zero-shot prediction ``(B, K)``, if the method knows it (default None).
        top: number of most likely classes to list, at most K (default 5). Rows of Bongard problems list none.

    Returns:
        The answers; probabilities of listed classes are rounded to 6 digits.

    >>> method_results(torch.tensor([[0.0, 0.0]]), top=0)
    [{'index': 0, 'confidence': 0.5, 'entropy': 0.6931471824645996, 'top5': [], 'top5_probs': []}]
    """
    probs, top5 = logits.softmax(dim=-1), logits.topk(min(top, logits.shape[-1])).indices
    columns = logits.argmax(dim=-1), probs.amax(dim=-1), entropy(logits), top5
    listed = zip(*(column.tolist() for column in columns), _rounded(probs.gather(-1, top5)), strict=True)
    names = ("index", "confidence", "entropy", "top5", "top5_probs")
    results: list[Any] = [dict(zip(names, values, strict=True)) for values in listed]
    if before is not None:
        plain, order = before.softmax(dim=-1), before.topk(top5.shape[-1]).indices
        lists = before.argmax(dim=-1).tolist(), order.tolist(), *(_rounded(plain.gather(-1, i)) for i in (order, top5))
        for result, (index, listed_before, *own) in zip(results, zip(*lists, strict=True), strict=True):
            result["zero_shot"] = ZeroShot(index=index, top5=listed_before, top5_probs=own[0], probs=own[1])
    return results


def method_result(
    logits: Float[Tensor, " k"], before: Float[Tensor, " k"] | None = None, *, top: int = 5
) -> MethodResult:
    """Return a method's answer for one image; see ``method_results``."""
    return method_results(logits[None], None if before is None else before[None], top=top)[0]


def _rounded(probs: Tensor) -> list[list[float]]:
    return [[round(p, 6) for p in row] for row in probs.tolist()]
