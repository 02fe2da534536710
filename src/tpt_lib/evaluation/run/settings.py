"""Collect everything that the results of a run depend on, for its header."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tpt_lib.evaluation.data.data_identity import dataset_identity
from tpt_lib.evaluation.data.eval_set import EvalSet
from tpt_lib.evaluation.run.stream_plan import Stream
from tpt_lib.evaluation.run_identity import describe
from tpt_lib.features.store import FeatureStore
from tpt_lib.methods.cases import Case, rewards_of
from tpt_lib.models.identity import identify
from tpt_lib.models.protocol import ClipLike
from tpt_lib.text.stored import prompts_digest
from tpt_lib.views.settings import ViewSettings

__all__ = ["described_methods", "run_settings"]


def run_settings(
    model: ClipLike,
    dataset: EvalSet | FeatureStore,
    cases: list[Case],
    views: ViewSettings,
    preset: str | None,
    stream: Stream | None,
) -> dict[str, Any]:
    """Return the settings of a run of ``evaluate``: everything but names and seeds that its results depend on."""
    methods = described_methods("evaluate", {case.name: (case.entry.predict, case.prompts) for case in cases})
    if isinstance(dataset, FeatureStore):
        shown: dict[str, Any] = {**dataset.index["views"], "n_views": dataset.n_views}
        known = {**dataset.entry["identity"], "stored": dataset.entry["dtype"], "data": dataset.data_identity}
    else:
        shown = {name: value for name, value in views.to_dict().items() if name != "seed"}
        known = {**identify(model), "data": dataset_identity(dataset)}
    found: dict[str, Any] = {"views": shown, **known, "methods": methods}
    if preset is not None:
        found["preset"] = preset
    if rewards := rewards_of(cases):
        found["reward"] = [{**identify(other), "prompts": prompts_digest(own)} for other, own in rewards]
    if votes := [case.name for case in cases if not case.entry.probabilities]:
        found["not_probabilities"] = votes
    if stream is not None:
        found["stream"] = stream.identity
    return found


def described_methods(caller: str, methods: Mapping[str, tuple[Any, Any]]) -> dict[str, str]:
    """Return for each name the description of a method and its prompts.

    Raises:
        ValueError: if a method cannot be described; the message names it.
    """
    found = {}
    for name, (method, prompts) in methods.items():
        try:
            found[name] = describe(method, prompts)
        except ValueError as error:
            raise ValueError(f"{caller}: {name!r}: {error}") from error
    return found
