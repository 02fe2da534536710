"""Load what the options name: the model, reward models, prompts and methods."""

from __future__ import annotations

import os
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

import tpt_lib as tpt
from tpt_lib.cli.options import refuse
from tpt_lib.evaluation.compare import BASELINES_AND_TPT
from tpt_lib.text_files import read_text

__all__ = [
    "classes_of",
    "methods_of",
    "model_and_prompts_of",
    "model_of",
    "named_models_of",
    "prompts_of",
    "reward_of",
    "rewards_of",
    "settings_of",
    "views_of",
]

WITH_A_SOURCE = ("hf-hub:", "local-dir:")  # prefixes of open_clip for models from elsewhere


def model_of(args: Namespace) -> Any:
    """Return the model of ``--model``, on its device."""
    if args.model == "tiny":
        refuse(args, ("pretrained",), "for architectures of open_clip; the embedded model has its own weights")
    elif _is_folder(args.model):
        refuse(args, ("pretrained",), f"for architectures of open_clip; the folder {args.model} has its own weights")
    return _loaded(args, args.model, args.pretrained)


def named_models_of(args: Namespace) -> dict[str, tuple[Any, str]]:
    """Return the models of ``--models`` as given, each with the Python code that loads it."""
    found = {}
    for text in dict.fromkeys(args.models):
        name, tag = _name_and_tag(text)
        model = _loaded(args, name, tag)
        code = f"tpt.load_transformers({name!r})" if _is_folder(name) else f"tpt.load_open_clip({name!r}, {tag!r})"
        device = next(model.module.parameters()).device
        moved = "" if device.type == "cpu" else f"\nmodel.module.to({str(device)!r})"
        found[text] = model, ("tpt.load_tiny()" if name == "tiny" else code) + moved
    return found


def rewards_of(args: Namespace, names: Sequence[str], template: str) -> dict[str, Any]:
    """Return the keyword ``reward`` if ``--reward`` was given: its models, with prompts for the same classes."""
    pairs = []
    for text in args.reward or ():
        model = reward_of(args, text)
        pairs.append((model, tpt.class_prompts(model, names, template=args.template or template)))
    return {"reward": pairs} if pairs else {}


def reward_of(args: Namespace, text: str) -> Any:
    """Return a model of ``--reward``, such as ``ViT-L-14:openai``, on the device of the main model."""
    return _loaded(args, *_name_and_tag(text))


def model_and_prompts_of(
    args: Namespace, names: Any, template: str, dataset: str | None = None
) -> tuple[Any, tpt.ClassPrompts, dict[str, Any]]:
    """Return the model, its prompts, and the keywords of ``settings_of`` and ``rewards_of`` that go with them."""
    model = model_of(args)
    prompts = prompts_of(args, model, names, template)
    return model, prompts, settings_of(args, dataset) | rewards_of(args, prompts.names, template)


def settings_of(args: Namespace, dataset: str | None = None) -> dict[str, Any]:
    """Return the keyword ``preset`` if ``--preset`` was given; ``dataset`` is the one that is evaluated."""
    if args.preset is None:
        return {}
    return {"preset": dataset if args.preset == "dataset" and dataset else args.preset}


def methods_of(args: Namespace, default: Sequence[str]) -> list[str]:
    """Return the names of ``--methods``. ``all`` is every episodic method, without those that lack a reward."""
    if not args.methods:
        return list(default)
    if args.methods != ["all"]:
        return list(args.methods)
    given = {"reward"} if args.reward else set()
    known = [name for name in tpt.list_methods() if "reward" not in {*tpt.get_method(name).needs} - given]
    return [*BASELINES_AND_TPT, *(name for name in known if name not in BASELINES_AND_TPT)]


def views_of(args: Namespace, **more: Any) -> dict[str, Any]:
    """Return the view keywords that were given, so that the others have the library's defaults."""
    given = {"n_views": args.n_views, "recipe": args.recipe}
    return {**{name: value for name, value in given.items() if value is not None}, **more}


def classes_of(args: Namespace) -> list[str] | None:
    """Return the class names of ``--classes`` or ``--classes-file``."""
    if args.classes_file is None:
        return args.classes
    names = [line.strip() for line in read_text("--classes-file", Path(args.classes_file)).splitlines()]
    return [name for name in names if name]


def prompts_of(args: Namespace, model: Any, names: Any, template: str) -> tpt.ClassPrompts:
    """Return the prompts of a model; ``--template`` replaces ``template``, the dataset's own."""
    if not names:
        raise ValueError("there are no class names: pass --classes or --classes-file")
    context = None if args.prompt is None else tpt.load_prompt(args.prompt)
    return tpt.class_prompts(model, names, template=args.template or template, context=context)


def _name_and_tag(text: str) -> tuple[str, str | None]:
    """Return a model and its weights from ``MODEL[:TAG]``."""
    if text.startswith(WITH_A_SOURCE) or _is_folder(text):
        return text, None
    name, _, tag = text.partition(":")
    return name or text, tag or None


def _loaded(args: Namespace, name: str, pretrained: str | None) -> Any:
    if name == "tiny":
        model: Any = tpt.load_tiny()
    elif _is_folder(name):
        model = tpt.load_transformers(name)
    else:
        model = tpt.load_open_clip(name, pretrained)
    own = f"cuda:{os.environ.get('LOCAL_RANK', 0)}" if torch.cuda.is_available() else "cpu"  # one per rank of torchrun
    try:
        model.module.to(args.device or own)
    except (RuntimeError, AssertionError) as error:  # as torch reports a missing or unknown device
        raise ValueError(f"--device {args.device or own} cannot be used: {error}") from error
    return model


def _is_folder(name: str) -> bool:
    """Return whether this is the folder of a transformers model."""
    return Path(name, "config.json").is_file()
