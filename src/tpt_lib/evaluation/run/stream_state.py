"""The file next to a run file that has the states of its online methods, and the position in the stream they belong to."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from tpt_lib.content import digest
from tpt_lib.evaluation.run_lines import check_is_file
from tpt_lib.methods.stream import rebuilt_state, state_tensors

__all__ = ["SavedStates", "StateFile"]

FORMAT = "tpt_lib stream state 1"
SECONDS = 10.0  # between two writes, the most that a kill loses
SHARE = 20  # writing takes at most 1/20 of the time, however large the states are

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
            initial: the states that each stream begins with.
        """
        self.path = run.with_name(f"{run.name}.state")
        self._partial = self.path.with_name(f".{self.path.name}.partial")
        self._hash, self._initial = run_hash, initial
        self._due = time.monotonic() + SECONDS

    @property
    def is_due(self) -> bool:
        """Whether the last write, or the start, was long enough ago."""
        return time.monotonic() >= self._due

    def write(self, saved: SavedStates) -> None:
        """Replace the file atomically, so that a kill leaves the old or the new one."""
        from safetensors.torch import save

        start = time.monotonic()
        tensors = {
            name: tensor.detach().cpu().clone(memory_format=torch.contiguous_format)
            for name, tensor in _tensors(saved.states).items()
        }
        about = {"format": FORMAT, "run": self._hash, "seed": str(saved.seed), "position": str(saved.position)}
        with self._partial.open("wb") as file:
            file.write(save(tensors, {**about, "digest": _digest(about, tensors)}))
            file.flush()
            os.fsync(file.fileno())
        self._partial.replace(self.path)
        end = time.monotonic()
        self._due = end + max(SECONDS, SHARE * (end - start))

    def read(self) -> SavedStates | None:
        """Return what the file has, or None if there is none.

        Raises:
            ValueError: if the file is damaged or belongs to another run.
        """
        from safetensors import SafetensorError, safe_open

        if not check_is_file(self.path).exists():
            return None
        try:
            with safe_open(self.path, "pt") as file:
                about = file.metadata() or {}
                tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        except SafetensorError as error:
            raise self._refused(f"is not a whole safetensors file ({error})") from error
        if about.get("format") != FORMAT:
            raise self._refused("was not written by evaluate")
        if about.pop("digest", None) != _digest(about, tensors):
            raise self._refused("is damaged: its content has changed since it was written")
        if about["run"] != self._hash:
            raise self._refused("has the states of another run")
        wanted = _tensors(self._initial)
        if _shapes(wanted) != _shapes(tensors):
            raise self._refused("has states of other shapes, as another version of a method may have")
        states = {
            name: rebuilt_state(
                state, {key: tensors[f"{at}.{key}"].to(x.device) for key, x in state_tensors("evaluate", state).items()}
            )
            for at, (name, state) in enumerate(self._initial.items())
        }
        return SavedStates(int(about["seed"]), int(about["position"]), states)

    def remove(self) -> None:
        """Remove the file, and what a kill left of a write."""
        for path in (self.path, self._partial):
            path.unlink(missing_ok=True)

    def _refused(self, why: str) -> ValueError:
        return ValueError(
            f"{str(self.path)!r} {why}. Restore it from a copy; or move it away, and evaluate computes the states again from "
            "the first image of the stream"
        )


def _tensors(states: States) -> dict[str, Tensor]:
    """Return the tensors of all states, by the number of the method and their names."""
    return {
        f"{at}.{name}": tensor
        for at, state in enumerate(states.values())
        for name, tensor in state_tensors("evaluate", state).items()
    }


def _digest(about: Mapping[str, str], tensors: Mapping[str, Tensor]) -> str:
    return digest([sorted(about.items()), *(part for name in sorted(tensors) for part in (name, tensors[name]))])


def _shapes(tensors: Mapping[str, Tensor]) -> dict[str, Any]:
    return {name: (tensor.dtype, tensor.shape) for name, tensor in tensors.items()}
