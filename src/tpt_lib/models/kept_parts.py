"""The parts of a tree of modules, read again only after something in the tree was added, removed or replaced."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import chain
from operator import is_, methodcaller
from typing import Any

from torch import nn

from tpt_lib.models.identity import TABLES, module_parts

Tables = list[dict[Any, Any]]


class KeptParts:
    """``module_parts`` of the modules that a function finds, for a fraction of the time while nothing changes.

    Compares the attributes of all modules by identity, in a few calls for the whole tree. It errs on one
    side only: ``module.train()`` makes it read the parts again. ``Fingerprint`` detects changes inside a weight. Copies and
    pickles are empty.
    """

    def __init__(self) -> None:
        self._kept: tuple[Snapshot, list[object]] | None = None

    def read(self, find: Callable[[], Iterable[nn.Module]]) -> list[object]:
        """Return the parts of the modules that ``find`` returns, which must include all submodules that matter."""
        kept = self._kept
        if kept is None or not kept[0].holds():
            modules = list(find())
            before = Snapshot.of(modules)  # first, so that the next call notices a change made while the parts are read
            kept = self._kept = (before, module_parts(modules))
        return list(kept[1])

    def __reduce__(self) -> tuple[type[KeptParts], tuple[()]]:
        return KeptParts, ()


@dataclass(frozen=True)
class Snapshot:
    """The names and values in the tables of modules. Keeps references to them so that their ids cannot be reused."""

    tables: Tables
    sizes: list[int]
    filled: Tables  # the tables that are not empty
    names: list[object]
    values: list[object]

    @classmethod
    def of(cls, modules: Iterable[nn.Module]) -> Snapshot:
        own = [vars(module) for module in modules]
        tables: Tables = [table for each in own for table in (each, *(each[name] for name in TABLES))]
        filled = [table for table in tables if table]
        return cls(tables, list(map(len, tables)), filled, list(chain.from_iterable(filled)), _values(filled))

    def holds(self) -> bool:
        """Return whether the tables still have the same names and the same values, by identity."""
        return (
            list(map(len, self.tables)) == self.sizes
            and list(chain.from_iterable(self.filled)) == self.names
            and all(map(is_, _values(self.filled), self.values))
        )


def _values(tables: Tables) -> list[object]:
    return list(chain.from_iterable(map(methodcaller("values"), tables)))
