"""Save the states of a run's online methods, and their position in the stream, in a file next to the run file."""

from __future__ import annotations

import time
from collections.abc import Mapping
from glob import escape
from pathlib import Path
from typing import Any, NamedTuple

from torch import Tensor

from tpt_lib.evaluation.run_lines import check_is_file
from tpt_lib.features.whole_file import DamagedFileError, check_tensors, map_tensors, write_tensors
from tpt_lib.methods.stream import rebuilt_state, state_tensors

__all__ = ["SavedStates", "StateFile"]

FORMAT = "tpt_lib stream state 1"
SECONDS = 10.0  # between writes; a kill loses at most this much work
SHARE = 20  # writing takes at most 1/20 of the time, however large the states are
REMEDY = (
    "Restore it from a copy; or move it away, so that evaluate recomputes the states from the first image of the stream"
)

States = Mapping[str, Any]


class SavedStates(NamedTuple):
    """The states of the methods, by name, after the images before ``position`` in the stream of a seed."""

    seed: int
    position: int
    states: States


class StateFile:
    """The state file of a run, ``OUT.state``. The run file's lock guards it."""

    def __init__(self, run: Path, run_hash: str, initial: States) -> None:
        """Name the file; nothing is read or written.

        Args:
            run: the run file.
            run_hash: the hash in its header. A file with another one is refused.
            initial: the states at the start of each stream.
        """
        self.path = run.with_name(f"{run.name}.state")
        self._hash, self._initial = run_hash, initial
        self._due = time.monotonic() + SECONDS

    @property
    def is_due(self) -> bool:
        """Whether the last write, or the start, was long enough ago."""
        return time.monotonic() >= self._due

    def write(self, saved: SavedStates) -> None:
        """Replace the file atomically, so that a kill leaves the old or the new one."""
        start = time.monotonic()
        notes = {"format": FORMAT, "run": self._hash, "seed": str(saved.seed), "position": str(saved.position)}
        write_tensors(self.path, {name: x.detach().cpu().clone() for name, x in _tensors(saved.states).items()}, notes)
        end = time.monotonic()
        self._due = end + max(SECONDS, SHARE * (end - start))

    def read(self) -> SavedStates | None:
        """Return what the file has, or None if there is none.

        Raises:
            ValueError: if the file is damaged or belongs to another run.
        """
        if not check_is_file(self.path).exists():
            return None
        try:
            notes = check_tensors(self.path)
        except DamagedFileError as error:
            raise ValueError(f"{error}. {REMEDY}") from error
        if notes.get("format") != FORMAT:
            raise self._refused("was not written by evaluate")
        if notes["run"] != self._hash:
            raise self._refused("has the states of another run")
        tensors, _ = map_tensors(self.path)
        if _shapes(_tensors(self._initial)) != _shapes(tensors):
            raise self._refused("has states of other shapes, as another version of a method may have")
        states = {
            name: rebuilt_state(
                state,
                {
                    key: tensors[f"{at}.{key}"].to(x.device, copy=True)
                    for key, x in state_tensors("evaluate", state).items()
                },
            )
            for at, (name, state) in enumerate(self._initial.items())
        }
        return SavedStates(int(notes["seed"]), int(notes["position"]), states)

    def remove(self) -> None:
        """Remove the file, and what a kill left of a write."""
        for path in self.path.parent.glob(f"{escape(self.path.name)}*"):
            if path == self.path or path.name.startswith(f"{self.path.name}.part-"):
                path.unlink()

    def _refused(self, why: str) -> ValueError:
        return ValueError(f"{str(self.path)!r} {why}. {REMEDY}")


def _tensors(states: States) -> dict[str, Tensor]:
    """Return the tensors of all states, by the number of the method and their names."""
    return {
        f"{at}.{name}": tensor
        for at, state in enumerate(states.values())
        for name, tensor in state_tensors("evaluate", state).items()
    }


def _shapes(tensors: Mapping[str, Tensor]) -> dict[str, Any]:
    return {name: (tensor.dtype, tensor.shape) for name, tensor in tensors.items()}
