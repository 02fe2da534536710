"""The schema of run files: the fields of their header and rows, and the functions that make them.

A run file has one JSON object per line: a header, then one row per seed and sample. A sample that failed and was tried again
has several: a row with results counts before one with an error, and of several errors the last.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from typing import Any, Literal, NotRequired, TypedDict

from jaxtyping import Float
from torch import Tensor

from tpt_lib.objectives import entropy

__all__ = [
    "VERDICTS",
    "Header",
    "MethodResult",
    "Row",
    "ZeroShot",
    "error_row",
    "is_final",
    "json_line",
    "method_result",
    "method_results",
    "result_row",
    "run_header",
    "truth_index",
]

VERDICTS = {"positive": 0, "negative": 1}

PACKAGES = ("tpt_lib", "torch", "torchvision", "open_clip_torch", "pillow", "numpy")


class Header(TypedDict):
    """First line of a run file.

    ``n`` is the number of samples per seed. Runs with the same ``hash`` are parts of one run; ``versions`` of packages
    are for information.
    """

    kind: Literal["run"]
    dataset: str
    split: str
    classes: list[str]
    methods: list[str]
    seeds: list[int]
    n: int
    settings: dict[str, Any]
    versions: dict[str, str]
    hash: str


class ZeroShot(TypedDict):
    """What the model says without the method: class, most likely classes and their probabilities.

    ``probs`` are its probabilities of the method's most likely classes, in their order.
    """

    index: int
    top5: list[int]
    top5_probs: list[float]
    probs: list[float]


class MethodResult(TypedDict):
    """A method's answer for one sample: class, probability, entropy in nats, most likely classes and their probabilities.

    ``zero_shot`` is there if the method's prediction has one. Files of version 0.1 have neither that nor ``top5_probs``.
    """

    index: int
    confidence: float
    entropy: float
    top5: list[int]
    top5_probs: NotRequired[list[float]]
    zero_shot: NotRequired[ZeroShot]


class Row(TypedDict):
    """One sample under one seed: ``methods`` and ``seconds``, or an ``error``.

    The path is that of the image, relative to the dataset's root if it is below it; None if the sample is no file. The
    truth is a class index, ``"positive"`` or ``"negative"`` for Bongard, or None if it is not known. The position is that
    in the stream of its seed, in runs with an online method. Files of version 0.1 have no paths.
    """

    kind: Literal["row"]
    seed: int
    sample: int
    path: NotRequired[str | None]
    truth: int | str | None
    position: NotRequired[int]
    methods: NotRequired[dict[str, MethodResult]]
    seconds: NotRequired[dict[str, float]]
    error: NotRequired[str]


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
        settings: everything else that results depend on, in types that JSON has.
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
    strict = {**identity, "settings": {name: _strict(value) for name, value in settings.items()}}
    digest = hashlib.sha256(json_line(strict)).hexdigest()[:16]
    return Header(kind="run", **identity, versions=_versions(), hash=digest)  # type: ignore[typeddict-item]


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


def is_final(row: Row) -> bool:
    """Return whether a row is kept when its run is resumed: one with results, or of an image that was refused.

    A file that was missing or could not be read, a lack of memory and any other error may pass, so they are tried again.
    """
    return row.get("error", "ImageError:").startswith("ImageError:")


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


def truth_index(truth: int | str) -> int:
    """Return the index of a true class; for Bongard 0 is positive and 1 negative."""
    return VERDICTS[truth] if isinstance(truth, str) else truth


def json_line(value: Mapping[str, Any]) -> bytes:
    """Return a value as one line of a run file."""
    return (json.dumps(value, ensure_ascii=False) + "\n").encode()


def _strict(setting: Any) -> Any:
    """Return a setting, or of what ``dataset_identity`` returned only what must be equal in all parts of a run."""
    return setting["digest"] if isinstance(setting, dict) and "digest" in setting else setting


def _versions() -> dict[str, str]:
    found = {}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found
