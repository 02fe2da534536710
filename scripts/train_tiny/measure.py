"""Measure a trained model for its card: methods on every held-out style, settings on the style they were chosen on."""

from __future__ import annotations

import functools
import tempfile
from pathlib import Path
from typing import Any

import torch
from drawings import Drawings, on_white
from safetensors.torch import load_file

import tpt_lib
from tpt_lib.evaluation.significance import mcnemar
from tpt_lib.tiny.drawings import PIXELS
from tpt_lib.tiny.model import unpack

CHOSEN_ON = "noto-v1"
PROBLEMS = 600  # Bongard problems
Methods = dict[str, Any]


def random_step(model: Any, prompts: Any, features: torch.Tensor, *, lr: float = 5e-3) -> tpt_lib.Prediction:
    """Take the control: a step as large as AdamW's first, in a direction that has nothing to do with the image."""
    generator = torch.Generator().manual_seed(int(features[0].sum() * 1e6) % 2**31)
    step = torch.randn(prompts.context.shape, generator=generator).sign() * lr
    text = tpt_lib.encode_prompts(model, prompts, prompts.context + step)
    return tpt_lib.Prediction(prompts.names, tpt_lib.class_logits(model, features[:1], text)[0])


METHODS: Methods = {
    "zero-shot": tpt_lib.zero_shot_predict,
    "TPT": tpt_lib.tpt_predict,
    "averaged": tpt_lib.average_predict,
    "random step": random_step,
}


def _tpt(**settings: Any) -> Any:
    fraction = settings.pop("fraction", None)
    if fraction is not None:
        settings["select"] = functools.partial(tpt_lib.select_confident, fraction=fraction)
    return functools.partial(tpt_lib.tpt_predict, **settings)


SETTINGS: Methods = {
    **{f"lr {lr:g}": _tpt(lr=lr) for lr in (1e-3, 2e-2)},
    "4 steps": _tpt(steps=4),
    **{f"fraction {fraction:g}": _tpt(fraction=fraction) for fraction in (0.3, 1.0)},
}


def with_seed(measured: Any, seed: int, cache: Path, *args: Any) -> Any:
    """Run one of the measurements below on the weights of a seed, loaded as ``load_tiny`` would load them."""
    model = tpt_lib.load_tiny()
    unpack(model.module, load_file(cache / f"seed-{seed}.safetensors"))
    with tempfile.TemporaryDirectory() as folder:
        return measured(model, Path(folder), *args)


def drawn_elsewhere(style: str, drawings: Drawings) -> tpt_lib.EvalSet:
    """Return what ``load_tiny_drawings`` would return for a style that is not shipped."""
    pixels = on_white(drawings.styles[style], PIXELS)
    there = drawings.styles[style][:, 3].flatten(1).any(dim=1).nonzero().flatten().tolist()
    return tpt_lib.EvalSet(style, [(pixels[i], i) for i in there], drawings.names)


def measure(model: Any, folder: Path, data: tpt_lib.EvalSet) -> dict[str, Any]:
    """Return a row of the card: accuracy of each method on a style, fixed and broken by TPT, calibration errors."""
    report = tpt_lib.evaluate(model, data, METHODS, out=folder / "style.jsonl", num_workers=0, progress=True)
    found = {row["method"]: row for row in report.rows()}
    paired = report.compare("TPT", "zero-shot").rows[0]
    return {
        "style": data.name,
        "n": paired["n"],
        **{method: found[method]["top1"] for method in METHODS},
        "fixed": paired["only_a"],
        "broken": paired["only_b"],
        "ece": found["zero-shot"]["ece15"],
        "ece_tpt": found["TPT"]["ece15"],
    }


def measure_settings(model: Any, folder: Path) -> dict[str, float]:
    """Return the accuracy under other settings, on the style that settings were chosen on."""
    data = tpt_lib.load_tiny_drawings(CHOSEN_ON)
    report = tpt_lib.evaluate(model, data, SETTINGS, out=folder / "settings.jsonl", num_workers=0, progress=True)
    return {row["method"]: row["top1"] for row in report.rows()}


def measure_bongard(model: Any, folder: Path) -> dict[str, float]:
    """Return the accuracy on problems of the embedded drawings, and half of its 95% interval."""
    problems = tpt_lib.load_tiny_bongard(0, n=PROBLEMS)
    methods = {"TPT": tpt_lib.bongard_tpt, "prototype": tpt_lib.bongard_prototype}
    report = tpt_lib.evaluate_bongard(model, problems, methods, out=folder / "bongard.jsonl")
    found = {row["method"]: row["top1"] for row in report.rows()}
    p, n = found["TPT"] / 100, 2 * len(problems)
    return {**found, "half": 196 * (p * (1 - p) / n) ** 0.5}


def pooled(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the gain over several rows with its 95% interval (paired, normal), and McNemar's p."""
    n, fixed, broken = (sum(row[key] for row in rows) for key in ("n", "fixed", "broken"))
    gain = (fixed - broken) / n
    half = 1.96 * ((fixed + broken) / n**2 - (fixed - broken) ** 2 / n**3) ** 0.5
    return {"n": n, "gain": 100 * gain, "half": 100 * half, "p": mcnemar(fixed, broken)}
