"""Define the schema of run files: the fields of their header and rows.

A run file has one JSON object per line: a header, then one row per seed and sample. A sample that failed and was tried again
has several rows: one with results is used rather than one with an error, and the last of several errors.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Literal, NotRequired, TypedDict

__all__ = ["VERDICTS", "Header", "MethodResult", "Row", "ZeroShot", "is_final", "json_line", "truth_index"]

VERDICTS = {"positive": 0, "negative": 1}


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
    """The model's prediction without the method: class, most likely classes and their probabilities.

    ``probs`` are its probabilities of the method's most likely classes, in their order.
    """

    index: int
    top5: list[int]
    top5_probs: list[float]
    probs: list[float]


class MethodResult(TypedDict):
    """A method's answer for one sample: class, probability, entropy in nats, most likely classes and their probabilities.

    ``zero_shot`` is present if the method's prediction has one. Files of version 0.1 have neither that nor ``top5_probs``.
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


def is_final(row: Row) -> bool:
    """Return whether a row is kept when its run is resumed: it has results, or its image was refused.

    Other errors, such as a missing file or a lack of memory, may be temporary, so their samples are tried again.
    """
    return row.get("error", "ImageError:").startswith("ImageError:")


def truth_index(truth: int | str) -> int:
    """Return the index of a true class; for Bongard 0 is positive and 1 negative."""
    return VERDICTS[truth] if isinstance(truth, str) else truth


def json_line(value: Mapping[str, Any]) -> bytes:
    """Return a value as one line of a run file."""
    return (json.dumps(value, ensure_ascii=False) + "\n").encode()
