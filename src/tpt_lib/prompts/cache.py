"""Cache what the text tower computed for prompts, for the next image."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from typing import Any, TypeVar

from tpt_lib.models.identity import Fingerprint

T = TypeVar("T")


class TextCache:
    """Values by key, each valid while the model's fingerprint is the same.

    A cache has its own lock, so that threads build a value once. Copies and pickles are empty, because graphs cannot be copied.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._kept: dict[Hashable, tuple[Fingerprint, Any]] = {}

    def keep(self, key: Hashable, fingerprint: Fingerprint | None, build: Callable[[], T]) -> T:
        """Return the value under ``key``, built if it is missing or stale. Without a fingerprint nothing is stored."""
        if fingerprint is None:
            return build()
        with self._lock:
            known, value = self._kept.get(key, (None, None))
            if not fingerprint.same(known):
                value = build()
                self._kept[key] = (fingerprint, value)
            return value  # type: ignore[return-value]

    def drop(self, key: Hashable) -> None:
        with self._lock:
            self._kept.pop(key, None)

    def clear(self) -> None:
        with self._lock:
            self._kept.clear()

    def __reduce__(self) -> tuple[type[TextCache], tuple[()]]:
        return TextCache, ()
