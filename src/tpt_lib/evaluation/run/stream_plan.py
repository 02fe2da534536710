"""Plan a run with online methods: check its options, order its streams, and make the initial states."""

from __future__ import annotations

import inspect
import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor

from tpt_lib.content import digest
from tpt_lib.evaluation.data.eval_set import EvalSet
from tpt_lib.evaluation.data.orders import sample_order
from tpt_lib.evaluation.run.checks import check_last_batch
from tpt_lib.features.store import FeatureStore
from tpt_lib.methods.base import OnlineMethod
from tpt_lib.methods.cases import Case
from tpt_lib.methods.stream import as_online, state_tensors
from tpt_lib.methods.tent import smallest_batch
from tpt_lib.models.protocol import ClipLike
from tpt_lib.prediction import Prediction
from tpt_lib.prompts.class_prompts import ClassPrompts

__all__ = ["OnlineCase", "Stream", "Streams", "plan_stream"]

Streams = Literal["per-rank"]


@dataclass(frozen=True)
class OnlineCase(Case):
    """An online method and its state after the images so far, ``states[name]``."""

    method: OnlineMethod[Any] = field(kw_only=True)
    states: dict[str, Any] = field(kw_only=True)

    def predict(
        self,
        model: ClipLike,
        features: Sequence[Tensor],
        views: Sequence[Tensor],
        similarities: Sequence[Sequence[Tensor]] = (),  # noqa: ARG002
    ) -> Prediction:
        """Step through B images: one by one and in order, or in one batch of plain images, as the method needs."""
        if self.needs_batches:
            return self._step(model, torch.stack([one[0] for one in views]), (len(views),))
        each = views if self.needs_views else features
        return Prediction.stack([self._step(model, one.clone(), ()) for one in each])

    def _step(self, model: ClipLike, given: Tensor, batch: tuple[int, ...]) -> Prediction:
        prompts: Any = self.prompts
        self.states[self.name], found = self.method.step(model, prompts, self.states[self.name], given)
        return self._checked(found, batch)


@dataclass(frozen=True)
class Stream:
    """The methods, orders and states of a run with online methods.

    Attributes:
        cases: all methods, the online ones with a state.
        orders: for each seed the order of all samples.
        initial: the states at the start of a stream, by method.
        states: the states after the images so far, by method.
        identity: what the run file records.
        unit: number of images that the methods learn from together: the batch size if one of them takes batches, else 1.
        smallest: the smallest batch that a method takes.
    """

    cases: list[Case]
    orders: dict[int, list[int]]
    initial: dict[str, Any]
    states: dict[str, Any]
    identity: dict[str, Any]
    unit: int
    smallest: int


def plan_stream(
    model: ClipLike,
    dataset: EvalSet | FeatureStore,
    cases: list[Case],
    seeds: Sequence[int],
    ranks: int,
    *,
    batch_size: int,
    order: str | None,
    streams: Streams | None,
    backend: str,
    retry_errors: bool,
) -> Stream | None:
    """Return what a run with online methods needs, or None if none of the methods is online.

    Args:
        model: the model.
        dataset: the dataset, or a store of its features.
        cases: the methods.
        seeds: seeds of the views and of the order.
        ranks: number of ranks. Each has a stream of its own over its share.
        batch_size: number of images in a batch, for methods that take batches.
        order: name of the order (default None: ``"shuffle"``); see ``sample_order``.
        streams: ``"per-rank"`` if more than one rank is wanted.
        backend: where the work is done.
        retry_errors: whether samples with an error are to be tried again.

    Raises:
        ValueError: if an option does not fit the methods, or a batch would be too small.
        TypeError: if the state of a method cannot be saved.
    """
    names = [case.name for case in cases if case.entry.online]
    _check_options(names, order, streams, backend, ranks, retry_errors)
    if not names:
        return None
    order = "shuffle" if order is None else order
    found = sample_order("evaluate", dataset, order)
    orders = {seed: found(seed) for seed in seeds}
    states: dict[str, Any] = {}
    all_cases = [
        _online(case, math.ceil(len(dataset) / ranks), states) if case.entry.online else case for case in cases
    ]
    online = [case for case in all_cases if isinstance(case, OnlineCase)]
    initial = {case.name: _initial(model, case) for case in online}
    smallest = {case.name: smallest_batch(case.method, model) for case in online}
    check_last_batch(smallest, len(dataset), ranks, batch_size)
    identity: dict[str, Any] = {"order": order, "digest": digest(map(torch.tensor, orders.values()))}
    if ranks > 1:
        identity |= {"streams": streams, "ranks": ranks}
    unit = 1
    if any(case.needs_batches for case in online):
        unit = identity["batch_size"] = batch_size
    return Stream(all_cases, orders, initial, states, identity, unit, max(smallest.values()))


def _online(case: Case, images: int, states: dict[str, Any]) -> OnlineCase:
    """Return the case with its method built. A method that takes ``expected`` gets the length of the stream."""
    predict: Any = case.entry.predict
    expected = None if isinstance(predict, OnlineMethod) else inspect.signature(predict).parameters.get("expected")
    if expected is not None and expected.default is None:
        predict = partial(predict, expected=images)
    entry = replace(case.entry, predict=predict)
    return OnlineCase(case.name, entry, case.prompts, method=as_online("evaluate", entry), states=states)


def _initial(model: ClipLike, case: OnlineCase) -> Any:
    if not isinstance(case.prompts, ClassPrompts):
        raise ValueError(
            f"evaluate: {case.name!r} is an online method and takes one prompt per class, not a list of prompts"
        )
    state = case.method.init(model, case.prompts)
    state_tensors(f"evaluate: {case.name!r}", state)
    return state


def _check_options(
    names: list[str], order: str | None, streams: str | None, backend: str, ranks: int, retry_errors: bool
) -> None:
    if not names:
        if given := [name for name, value in (("order", order), ("streams", streams)) if value is not None]:
            raise ValueError(
                f"evaluate: {given[0]} was given, but none of the methods is online, and the results of others do not depend "
                "on the order of images; leave it out"
            )
        return
    if streams not in (None, "per-rank"):
        raise ValueError(f"evaluate: streams must be 'per-rank' or None, but got {streams!r}")
    reason = f"{names[0]!r} is an online method, which learns from the images in their order"
    if (ranks > 1 or backend == "ray") and streams is None:
        who = "Ray's actors take any samples in any order" if backend == "ray" else f"{ranks} ranks see a share each"
        raise ValueError(
            f"evaluate: {reason}, but {who}; use one process, or streams='per-rank' for a stream of its own on each rank (with "
            "Ray, on each of num_workers workers). Results then depend on their number"
        )
    if retry_errors:
        raise ValueError(
            f"evaluate: {reason}. Images after a failed one were predicted without it, so it cannot be tried again; leave out "
            "retry_errors, or pass another `out`"
        )
