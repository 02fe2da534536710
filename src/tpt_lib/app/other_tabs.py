"""Run what the other tabs show: all methods on one image, and a Bongard problem."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

import tpt_lib as tpt
from tpt_lib.app.choices import MAX_BONGARD_STEPS, Choice, Picture, check_number, selectable_methods
from tpt_lib.app.explain import ENCODED, encode
from tpt_lib.app.stoppable import Report, ignore
from tpt_lib.app.words import NamedModel


@dataclass(frozen=True)
class MethodRow:
    """The prediction of one method, or why it cannot run, and its seconds without views and features."""

    title: str
    prediction: tpt.Prediction | None
    seconds: float
    error: str = ""


def compare_methods(named: NamedModel, choice: Choice, report: Report = ignore) -> list[MethodRow]:
    """Run every method that needs only features on one image, each with its own defaults; zero-shot first.

    Args:
        named: the model.
        choice: what the user chose; its method and settings are not used.
        report: called with the share of the work that is done and a text; what it raises stops the work.
    """
    encoded = encode(named.model, choice, report)
    names = sorted(selectable_methods(features_only=True), key=lambda name: name != "zero_shot")
    rows = []
    for i, name in enumerate(names):
        entry = tpt.get_method(name)
        report(ENCODED + (1 - ENCODED) * i / len(names), entry.title)
        predict: Any = entry.predict
        start = time.perf_counter()
        try:
            said, error = predict(named.model, encoded.prompts, encoded.features.clone()), ""
        except (ValueError, TypeError) as refused:
            said, error = None, str(refused)
        rows.append(MethodRow(entry.title, said, time.perf_counter() - start, error))
    return rows


def solve_bongard(
    named: NamedModel,
    positives: Sequence[Picture],
    negatives: Sequence[Picture],
    queries: Sequence[Picture],
    *,
    steps: int = 64,
    lr: float = 5e-3,
    seed: int = 0,
    report: Report = ignore,
) -> tpt.BongardPrediction:
    """Solve a Bongard problem as ``bongard_tpt`` does, with a report for each image that is encoded.

    Args:
        named: the model.
        positives, negatives, queries: the images.
        steps, lr, seed: those of ``bongard_tpt``.
        report: called with the share of the work that is done and a text; what it raises stops the work.
    """
    check_number("steps", steps, 0, MAX_BONGARD_STEPS)
    groups = [[picture.pixels for picture in group] for group in (positives, negatives, queries)]
    total, features = sum(map(len, groups)), list[Tensor]()
    for pixels in [pixels for group in groups for pixels in group]:
        report(ENCODED * len(features) / total, f"features of image {len(features) + 1} of {total}")
        features.append(tpt.encode_images(named.model, pixels))
    report(ENCODED, f"{steps} steps")
    each = torch.cat(features).split([len(group) for group in groups])
    solved = tpt.bongard_tpt(named.model, *each, steps=steps, lr=lr, seed=seed)
    return replace(solved, images=(groups[0], groups[1], groups[2]))
