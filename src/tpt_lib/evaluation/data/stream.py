"""Read streams of samples whose length is not known: count the samples once, then read them in order.

Convention:
    - One pass before the work counts the samples and collects their labels. After it, a stream is a dataset like any other:
      it has a length and an identity, can be divided among ranks and loader processes, and a run on it can be resumed.
    - To reach a sample, all samples before it are read. Every process reads the whole stream and uses its share.
    - The samples must come in the same order each time. A label that differs from that of the first pass is an error.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch.utils.data
from torch import Tensor
from torch.utils.data import Dataset

from tpt_lib.evaluation.data.columns import class_labels
from tpt_lib.views.reading import read_encoded

__all__ = ["Stream", "read_stream"]


class Stream(Dataset[tuple[Any, int]]):
    """A torch dataset of (image, label) from a stream, which is read in order and restarted to go back."""

    def __init__(self, source: Any, said: Sequence[Any], targets: Sequence[int]) -> None:
        self.source, self.said, self.targets = source, list(said), list(targets)
        self._rest: Iterator[Any] | None = None
        self._next = self._process = 0

    def __len__(self) -> int:
        return len(self.targets)

    def __getitem__(self, index: int) -> tuple[Any, int]:
        if not 0 <= index < len(self):
            raise IndexError(f"a stream of {len(self)} samples has no sample {index}")
        rest, self._rest = self._rest, None  # an iterator that raises is not used again
        if rest is None or index < self._next or self._process != os.getpid():  # a fork shares the place in open files
            rest, self._next, self._process = _start(self.source), 0, os.getpid()
        with _as_a_whole():
            for at in range(self._next, index + 1):
                sample: Any = next(rest, None)
                if sample is None:
                    raise ValueError(
                        f"the stream ended after {at} of {len(self)} samples; it must yield the same samples each time"
                    )
        self._rest, self._next = rest, index + 1
        image, label = sample
        if _plain(label) != self.said[index]:
            raise ValueError(
                f"the label of sample {index} of the stream was {self.said[index]!r} and is {_plain(label)!r:.80} now; samples "
                "must come in the same order each time: fix the seed of its shuffling"
            )
        image = read_encoded(image, f"sample {index} of the stream") if isinstance(image, bytes) else image
        return image, self.targets[index]

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_rest": None}


def read_stream(source: Any, classes: Sequence[str] | None) -> tuple[Stream, tuple[str, ...]]:
    """Return the samples of a stream, which is read once to count them, and the class names.

    Args:
        source: an iterable of (image, label) that can be iterated again, or a function that returns an iterator. An image may
            also be the bytes of a file.
        classes: class names in the order of the labels, or None if labels are names.

    Raises:
        ValueError: if it can be read only once, is empty, raises an error, or yields anything else.
    """
    if isinstance(source, Iterator):
        raise ValueError(
            f"load_dataset: a {type(source).__name__} can be read only once, and a stream is read again to resume a run. Pass "
            "the function that makes it, an IterableDataset, or list(…) of it if it fits in memory"
        )
    said: list[Any] = []
    try:
        for sample in _start(source):
            if not isinstance(sample, tuple | list) or len(sample) != 2:
                raise TypeError(f"it must be (image, label), but is {type(sample).__name__} {sample!r:.60}")
            said.append(_plain(sample[1]))
    except Exception as error:  # a stream may raise anything
        if str(error).startswith("load_dataset: "):
            raise
        raise ValueError(
            f"load_dataset: sample {len(said)} of the stream cannot be read: {type(error).__name__}: {error}. Yield paths or "
            "bytes instead of decoded images, so that a bad image is the error of its sample alone"
        ) from error
    if not said:
        raise ValueError("load_dataset: the stream is empty")
    targets, names = class_labels("load_dataset", said, classes, "sample {} of the stream".format)
    found = Stream(source, said, targets)
    try:
        found[0]
    except ValueError as error:
        raise ValueError(f"load_dataset: when it was read again, {error}") from error
    return found, names


def _start(source: Any) -> Iterator[Any]:
    return iter(source if hasattr(source, "__iter__") else source())


def _plain(label: Any) -> Any:
    return label.item() if isinstance(label, Tensor) and label.ndim == 0 else label


@contextmanager
def _as_a_whole() -> Iterator[None]:
    """Keep a stream from yielding only the share of a loader process, since indices are already divided."""
    worker: Any = torch.utils.data._utils.worker
    info, worker._worker_info = worker._worker_info, None
    try:
        yield
    finally:
        worker._worker_info = info
